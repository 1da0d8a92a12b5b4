"""The command line: parse at the door, call the pipeline, print, return the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from envcheck import __version__, option_values, options, result_options
from envcheck.errors import UsageError

_EPILOG = """exit codes: 0 compatible (verify: authentic), 1 envcheck failed and nothing was
verified, 2 usage, 3 file, interpreter or engine not to be had, 10 incompatible,
11 inconclusive, 12 signature or digest does not verify (guard: or is about
something else); a job that guard started gives its own"""


def _formatter(prog: str) -> argparse.HelpFormatter:
    # Imported when help is printed, as the rest here is imported where it is used: a command
    # that prints one line should not pay for what it does not need.
    from rich_argparse import RichHelpFormatter

    return RichHelpFormatter(prog)


class _Version(argparse.Action):
    """Print the version; argparse's own action formats it as help, with all that needs."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        print(f"envcheck {__version__}")
        raise SystemExit(0)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"{self.prog} --help")


def _options(fill: Callable[[argparse.ArgumentParser], object]) -> _Parser:
    """Return a parser of options that several commands share."""
    parser = _Parser(add_help=False, formatter_class=_formatter)
    fill(parser)
    return parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    common, form, judged = map(_options, (options.common, options.form, options.judged))
    reported = _options(options.reported)
    kept, signed, executed = map(_options, (options.kept, options.signed, options.executed))
    settled = _Parser(
        add_help=False,
        parents=[
            _options(partial(options.judged, configured=True)),
            _options(options.configured),
        ],
    )
    parser = _Parser(
        prog="envcheck",
        formatter_class=_formatter,
        epilog=_EPILOG,
        description="Will this environment work on that GPU?",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    add = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", prog="envcheck")

    def command(name: str, text: str, parents: list[_Parser]) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = add.add_parser(
            name,
            help=text,
            description=text,
            parents=parents,
            formatter_class=_formatter,
            epilog=_EPILOG,
        )
        return made

    command("targets", "List the known architectures and cards.", [form])
    command(
        "build",
        "Build the environment of an architecture, compile for it inside, and judge it.",
        [
            common,
            reported,
            settled,
            kept,
            signed,
            executed,
            _options(options.built),
        ],
    )
    one = command(
        "scan",
        "Judge files, directories, wheels and archives by their bytes; nothing is run or imported.",
        [common, reported, judged, kept],
    )
    one.add_argument("paths", nargs="+", metavar="PATH")
    one = command(
        "check",
        "Judge the environment of a Python interpreter. With --arch native everything is run on "
        "the card here, too; else nothing of it is imported.",
        [common, reported, settled, kept, signed, executed],
    )
    where = one.add_mutually_exclusive_group()
    where.add_argument(
        "--python", metavar="PATH", help="interpreter or venv to look at (default: this one)"
    )
    where.add_argument(
        "--image", metavar="REF", help="container image to look at, with its own Python"
    )
    one.add_argument(
        "--gpus",
        type=option_values.gpus,
        metavar="WHICH",
        help="with --image and --arch native: the cards of the container, as docker run names"
        " them (all, 1, device=GPU-...)",
    )
    one = command(
        "preflight",
        "Look at a rented machine and the environment on it, the cheapest reason to give it back "
        "first; the last line says whether to keep it.",
        [common, reported, kept, signed, _options(options.configured), _options(options.rented)],
    )
    one.set_defaults(only=[], skip=[], driver=None)
    one = command(
        "judge",
        "Judge a saved inventory again, for another target or driver.",
        [common, reported, judged],
    )
    one.add_argument("inventory", type=Path, metavar="INVENTORY")
    one = command(
        "keygen",
        "Make an Ed25519 key pair; ENVCHECK_PASSPHRASE or --passphrase encrypts it.",
        [common],
    )
    one.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="KEY.pem",
        help="private key; the public one gets the suffix .pub",
    )
    one.add_argument("--passphrase", action="store_true", help="ask for a passphrase")
    one = command(
        "verify",
        "Verify a manifest offline and print what was signed. Exit code 0 says "
        "that it is authentic, not that it says compatible.",
        [common, form, kept],
    )
    one.add_argument("manifest", type=Path, metavar="MANIFEST")
    one.add_argument(
        "--key",
        type=Path,
        action="append",
        required=True,
        metavar="KEY.pub",
        help="public key that may have signed; may be repeated",
    )
    command(
        "guard",
        "Start a job on a manifest that is authentic, fresh and about this environment, driver "
        "and card: CMD replaces envcheck, in the same process. Else say what differs, and start "
        "nothing.",
        [_options(options.guarded)],
    )
    command(
        "compare",
        "Compare saved manifests, inventories or reports with the first of them. Exit code 10 says "
        "that something which passed there fails in another one, 11 that nothing could be compared.",
        [common, reported, _options(result_options.compared)],
    )
    command(
        "export",
        "Run CMD, and copy the files that it has finished to a safe place meanwhile, and once more "
        "when it ends. The exit code is that of CMD; 1 if only the last export failed.",
        [_options(result_options.exported)],
    )
    one = command(
        "selftest",
        "Compare what a scan says with what the card of this machine does. Exit code 10 says "
        "that they disagree somewhere, 11 that nothing could be compared.",
        [common, form],
    )
    one.add_argument(
        "--truth",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="load each object of this folder on the card; nothing is loaded without it",
    )
    one.add_argument("--cudart", metavar="FILE", help="CUDA runtime for libraries that need one")
    one = command("explain", "Say what a check claims, how it looks, and what to do.", [])
    one.add_argument("check", nargs="?", metavar="CHECK-ID", help="without it: list all checks")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run one command; raises EnvcheckError for everything that is no verdict."""
    given = build_parser().parse_args(argv)
    from envcheck.commands import command

    if hasattr(given, "config"):
        from envcheck.commands import configured

        configured.settle(given)
    options.resolve(given)
    return command(given.command)(given)
