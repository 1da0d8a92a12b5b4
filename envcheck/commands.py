"""One function for each command of the command line; each returns the exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck import __version__
from envcheck.core import codec
from envcheck.core.model import INVENTORY_SCHEMA, Inventory, Report, Target, Verdict
from envcheck.errors import DocumentInvalid, FileUnavailable, UsageError

if TYPE_CHECKING:
    from envcheck.sign import SigningKey

_PASSPHRASE = "ENVCHECK_PASSPHRASE"
_WORST = (Verdict.COMPATIBLE, Verdict.INCONCLUSIVE, Verdict.INCOMPATIBLE)
_MAX_DOCUMENT = 1 << 28


def targets(options: argparse.Namespace) -> int:
    """List the known architectures and cards."""
    from envcheck import targets as catalogue

    known = catalogue.catalogue()
    if options.format == "json":
        _write(codec.dumps({"schema": "envcheck/targets/v1", **codec.to_json(known)}).encode())
        return 0
    from envcheck.output import catalogue as listing

    listing.render(known, sys.stdout)
    return 0


def scan(options: argparse.Namespace) -> int:
    """Judge files by their bytes."""
    from envcheck import pipeline
    from envcheck.output.progress import bar

    with bar(quiet=options.quiet) as shown:
        if shown.shown:
            shown.announce(pipeline.total_size(options.paths))
        inventory = pipeline.scan(options.paths, shown.step)
    _save(options, inventory)
    return _answer(options, _judge(options, inventory))


def check(options: argparse.Namespace) -> int:
    """Judge the environment of an interpreter, and seal the manifest when asked to."""
    signer = _signer(options)
    from envcheck import pipeline
    from envcheck.output.progress import bar

    started = _now()
    with bar(quiet=options.quiet) as shown:
        if options.image is not None:
            inventory = pipeline.collect_image(options.image, lambda name: shown.step(name, 0))
        else:
            python = sys.executable if options.python is None else options.python
            inventory = pipeline.collect(python, shown.step, shown.announce)
    _save(options, inventory)
    reports = _judge(options, inventory)
    if signer is not None:
        _seal(options, inventory, reports, signer, started)
    return _answer(options, reports)


def judge(options: argparse.Namespace) -> int:
    """Judge a saved inventory again."""
    name = str(options.inventory)
    data = codec.parse(_read(options.inventory), name=name)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != INVENTORY_SCHEMA:
        message = (
            f"{name}.schema: {schema!r} is not {INVENTORY_SCHEMA!r}, which is all that is read"
        )
        raise DocumentInvalid(message, remedy="--save-inventory FILE of this version writes one")
    return _answer(options, _judge(options, codec.from_json(Inventory, data, name)))


def keygen(options: argparse.Namespace) -> int:
    """Make a key pair."""
    from envcheck import sign

    private: Path = options.output
    public = private.with_suffix(".pub")
    if public == private:
        message = f"{private}: the public key would get the same name"
        raise UsageError(message, remedy="-o key.pem")
    passphrase = os.environ.get(_PASSPHRASE, "").encode() or None
    if options.passphrase:
        passphrase = _ask_twice()
    keyid = sign.generate_key(private, public, passphrase=passphrase)
    if not options.quiet:
        kept = "encrypted" if passphrase else "not encrypted: keep it where nobody else reads"
        print(f"{private}: private key ({kept})\n{public}: public key\nkey id {keyid}")
    return 0


def verify(options: argparse.Namespace) -> int:
    """Verify a manifest and print what was signed."""
    from envcheck import attest, sign

    payload = sign.open_envelope(_read(options.manifest), options.key)
    manifest = attest.read_statement(payload)
    _save(options, manifest.inventory)
    if options.format == "json":
        _write(payload + b"\n")
        return 0
    report = manifest.report
    if not options.quiet:
        print(
            f"authentic: signed by a given key, made by envcheck {manifest.version} at "
            f"{manifest.finished}\nenvironment: {manifest.subject}\n"
            f"target: {report.target.name} ({report.target.sm}), assurance: "
            f"{report.assurance.value}"
        )
    print(f"signed verdict: {report.summary['line']}")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Say what a check claims, how it looks, and what to do."""
    from envcheck.checks import CHECKS
    from envcheck.output import explanation

    if options.check is None:
        explanation.render_list(CHECKS, sys.stdout)
        return 0
    found = next((c for c in CHECKS if c.id == options.check), None)
    if found is None:
        message = f"no check is named {options.check!r}"
        raise UsageError(message, remedy=f"one of {', '.join(c.id for c in CHECKS)}")
    explanation.render(found, sys.stdout)
    return 0


def _judge(options: argparse.Namespace, inventory: Inventory) -> list[Report]:
    from envcheck.judge import judge as judged

    wanted: dict[str, Target] = {t.name: t for t in options.arch}
    return [judged(target, inventory, options.driver) for target in wanted.values()]


def _answer(options: argparse.Namespace, reports: list[Report]) -> int:
    """Print the reports and return the exit code of the worst."""
    if options.format == "json":
        from envcheck.output import json

        _write(json.render(reports).encode())
    else:
        from envcheck.output import text

        verbosity = int(options.verbose) - 2 * int(options.quiet)
        text.render(reports, sys.stdout, verbosity=max(-1, verbosity))
    return worst(r.verdict for r in reports).exit_code


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that decides the exit code of several."""
    return max(verdicts, key=_WORST.index)


def _write(document: bytes) -> None:
    """Write JSON to stdout: always UTF-8, whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(document)


def _save(options: argparse.Namespace, inventory: Inventory) -> None:
    from envcheck import atomic

    if options.save_inventory is not None:
        atomic.write(options.save_inventory, codec.dumps(inventory).encode())


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            reason = "not a regular file" if path.exists() else "no such file"
            message = f"{path}: {reason}"
            raise FileUnavailable(message, remedy="check the path")
        if path.stat().st_size > _MAX_DOCUMENT:
            message = f"{path}: larger than {_MAX_DOCUMENT} bytes"
            raise FileUnavailable(message)
        return path.read_bytes()
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise FileUnavailable(message, remedy="check the path") from None


def _signer(options: argparse.Namespace) -> SigningKey | None:
    """Load the key before the work is done; raises UsageError for half of a request."""
    if (options.sign is None) != (options.output is None):
        missing = "-o FILE" if options.output is None else "--sign KEY"
        message = "--sign and -o belong together: a manifest is signed and written"
        raise UsageError(message, remedy=f"add {missing}")
    if options.sign is None:
        return None
    if len({t.name for t in options.arch}) > 1 and not options.output.is_dir():
        message = f"{options.output}: with several --arch, -o must be an existing folder"
        raise UsageError(message, remedy=f"mkdir -p {options.output}")
    from envcheck import sign

    key = sign.load_signer(options.sign, passphrase=_passphrase)
    if key.warning:
        print(f"envcheck: warning: {key.warning}", file=sys.stderr)
    return key


def _seal(
    options: argparse.Namespace,
    inventory: Inventory,
    reports: list[Report],
    signer: SigningKey,
    started: str,
) -> None:
    import hashlib

    from envcheck import atomic, attest, sign
    from envcheck import targets as catalogue

    digest = hashlib.sha256(catalogue.data_file().read_bytes()).hexdigest()
    origin = attest.Origin(
        version=__version__, targets_digest=digest, started=started, finished=_now()
    )
    for report in reports:
        path: Path = options.output
        path = path / f"{report.target.name}.json" if path.is_dir() else path
        atomic.write(path, sign.seal(attest.attest(inventory, report, origin), signer))
        if not options.quiet:
            print(f"envcheck: manifest written: {path}", file=sys.stderr)


def _passphrase() -> bytes:
    known = os.environ.get(_PASSPHRASE)
    if known is not None:
        return known.encode()
    if not sys.stdin.isatty():
        message = "the key is encrypted and nobody is there to ask"
        raise UsageError(message, remedy=f"set {_PASSPHRASE}")
    import getpass

    return getpass.getpass("passphrase of the key: ").encode()


def _ask_twice() -> bytes:
    import getpass

    try:
        first = getpass.getpass("passphrase for the new key: ")
        second = getpass.getpass("again: ")
    except EOFError:
        message = "nobody is there to type a passphrase"
        raise UsageError(message, remedy=f"set {_PASSPHRASE}") from None
    if not first or first != second:
        message = "the passphrases are empty or differ"
        raise UsageError(message, remedy="type the same passphrase twice")
    return first.encode()


def _now() -> str:
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "targets": targets,
    "scan": scan,
    "check": check,
    "judge": judge,
    "keygen": keygen,
    "verify": verify,
    "explain": explain,
}
