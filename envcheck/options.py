"""Options that commands share, and what their words mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck import option_values

if TYPE_CHECKING:
    from envcheck.core.model import Target


def _target(text: str) -> Target | None:
    """Return a target, None for `native`: what that is only the card knows."""
    from envcheck import targets

    return None if text.strip().lower() == "native" else targets.resolve(text)


def resolve(given: argparse.Namespace) -> None:
    """Put the card that is here in the place of `native`; raises FileUnavailable without one."""
    arch: list[Target | None] = getattr(given, "arch", None) or []
    if None in arch:
        from envcheck import native

        given.arch = [native.target() if target is None else target for target in arch]


def common(add: argparse.ArgumentParser) -> None:
    """Add what every command knows."""
    add.add_argument("-q", "--quiet", action="store_true", help="only the verdict, no progress")
    add.add_argument("-v", "--verbose", action="store_true", help="every finding")


def form(add: argparse.ArgumentParser) -> None:
    """Add the form of the answer."""
    add.add_argument(
        "--format", choices=("text", "json"), default="text", help="json prints only JSON on stdout"
    )


def reported(add: argparse.ArgumentParser) -> None:
    """Add the form of an answer that is a report."""
    add.add_argument(
        "--format",
        choices=("text", "json", "markdown"),
        default="text",
        help="json and markdown print only the document on stdout",
    )


def judged(add: argparse.ArgumentParser, *, configured: bool = False) -> None:
    """Add what is judged for; where a configuration is read, it may stand there."""
    add.add_argument(
        "--arch",
        action="append",
        required=not configured,
        type=_target,
        metavar="NAME",
        help="architecture, card or sm_NN to judge for, `native` for the card here; may be repeated"
        + (" (default: architectures of the settings)" if configured else ""),
    )
    add.add_argument(
        "--driver",
        type=option_values.driver,
        metavar="VERSION",
        help="NVIDIA driver to judge for, such as 580.65.06",
    )
    for name, text in (("--only", "ask this check alone"), ("--skip", "do not ask this check")):
        add.add_argument(
            name, action="append", default=[], metavar="CHECK", help=f"{text}; may be repeated"
        )
    add.add_argument(
        "--require",
        type=option_values.assurance,
        default=None if configured else "scanned",
        metavar="ASSURANCE",
        help="with less than this (scanned, compiled or executed) it is inconclusive"
        + (" (default: require of the settings)" if configured else ""),
    )


def executed(add: argparse.ArgumentParser) -> None:
    """Add what matters where something is run on a card."""
    add.add_argument(
        "--budget",
        type=option_values.seconds,
        metavar="TIME",
        help="of what is run on a card, such as 20s or 3m (default: 60s); what does not fit is"
        " left out, and named",
    )
    add.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of all random operands (default: 1)"
    )


def rented(add: argparse.ArgumentParser) -> None:
    """Add what `preflight` alone knows: what the machine should be, and how long to look."""
    add.add_argument(
        "--python", metavar="PATH", help="interpreter or venv of the job (default: this one)"
    )
    add.add_argument("--expect", metavar="NAME", help="card or architecture that was rented")
    add.add_argument(
        "--gpus", type=option_values.count, metavar="N", help="cards that the job must see"
    )
    for name, text in (
        ("--disk", "that must be free where the data will lie, such as 200GB"),
        ("--shm", "that /dev/shm must take, such as 16GB"),
    ):
        add.add_argument(name, type=option_values.size, metavar="SIZE", help=text)
    add.add_argument(
        "--workers", type=option_values.count, metavar="N", help="processes of the DataLoader"
    )
    add.add_argument(
        "--data", type=Path, default=Path(), metavar="FOLDER", help="where the data will lie"
    )
    depth = add.add_mutually_exclusive_group()
    depth.add_argument(
        "--budget", type=option_values.seconds, metavar="TIME", help="of all of it (default: 60s)"
    )
    depth.add_argument("--quick", action="store_true", help="20 seconds")
    depth.add_argument(
        "--full", action="store_true", help="ten minutes: longer burn, all patterns on all memory"
    )
    add.add_argument(
        "--keep-going", action="store_true", help="look at the rest of a machine that is unfit"
    )
    add.add_argument(
        "--redact",
        action=argparse.BooleanOptionalAction,
        help="put salted hashes in the place of host names, addresses, UUIDs and serial numbers;"
        " ENVCHECK_REDACT_SALT gives several machines one salt (default: with --format markdown)",
    )
    add.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of all random operands (default: 1)"
    )
    add.add_argument(
        "--require",
        type=option_values.assurance,
        metavar="ASSURANCE",
        help="with less than this (scanned, compiled or executed) it is inconclusive",
    )


def configured(add: argparse.ArgumentParser) -> None:
    """Add where the settings stand."""
    add.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings (default: envcheck.toml, or pyproject.toml, here)",
    )


def kept(add: argparse.ArgumentParser) -> None:
    """Add where the facts are kept."""
    add.add_argument(
        "--save-inventory", type=Path, metavar="FILE", help="write the facts, for `envcheck judge`"
    )


def signed(add: argparse.ArgumentParser) -> None:
    """Add the manifest."""
    add.add_argument("--sign", type=Path, metavar="KEY", help="sign the manifest with this key")
    add.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="where the manifest goes; a folder with several --arch",
    )


def guarded(add: argparse.ArgumentParser) -> None:
    """Add what `guard` alone knows; the same in [guard] of the settings stands below it."""
    add.add_argument(
        "-q", "--quiet", action="store_true", help="do not say what could not be compared"
    )
    add.add_argument(
        "--manifest", type=Path, required=True, metavar="FILE", help="as check --sign wrote it"
    )
    add.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="KEY.pub",
        help="public key that may have signed; may be repeated",
    )
    add.add_argument(
        "--max-age",
        type=option_values.age,
        metavar="AGE",
        help="of the manifest: 90s, 30m, 24h or 7d",
    )
    add.add_argument(
        "--require",
        choices=("scanned", "compiled", "executed"),
        help="the least assurance (default: scanned)",
    )
    add.add_argument(
        "--target",
        metavar="NAME",
        help="architecture or card that the manifest must be about",
    )
    add.add_argument(
        "--deep", action="store_true", help="hash all files, not only what seems changed"
    )
    add.add_argument(
        "--python",
        metavar="PATH",
        help="interpreter or venv of the job (default: CMD, or the one in its first line)",
    )
    add.add_argument(
        "--config",
        dest="settings_file",
        type=Path,
        metavar="FILE",
        help="settings, of which the table `guard` counts (default: envcheck.toml, or"
        " pyproject.toml, here)",
    )
    add.add_argument("words", nargs="+", metavar="CMD", help="the job and its arguments, after --")


def built(add: argparse.ArgumentParser) -> None:
    """Add what `build` alone knows; the same in envcheck.toml stands below the command line."""
    add.add_argument(
        "--engine",
        choices=("auto", "docker", "venv"),
        default="auto",
        help="auto: Docker if it answers, else a venv",
    )
    for name, metavar, text in (
        ("--lock", "FILE", "requirements with hashes, instead of the architecture's own"),
        ("--builder-lock", "FILE", "the same for nvcc and build tools"),
        ("--pip-config", "FILE", "pip.conf with index and credentials; it stays in no layer"),
        ("--ca-file", "FILE", "certificates that the network needs; they stay in no layer"),
        ("--log", "FILE", "where the build's full log goes"),
    ):
        add.add_argument(name, type=Path, metavar=metavar, help=text)
    add.add_argument("--base", metavar="IMAGE", help="base image, NAME:TAG@sha256:...")
    add.add_argument("--builder", metavar="NAME", help="builder of docker buildx")
    add.add_argument("--network", choices=("default", "host", "none"), help="of the build's steps")
    add.add_argument("--python", metavar="PATH", help="interpreter that a venv is made with")
    add.add_argument(
        "--directory",
        type=Path,
        default=Path(".envcheck"),
        metavar="FOLDER",
        help="where venvs are built (default: .envcheck)",
    )
    add.add_argument("--no-cache", action="store_true", help="build and look anew")
    add.add_argument(
        "--check-reproducible",
        action="store_true",
        help="build twice, and list the files that differ",
    )
