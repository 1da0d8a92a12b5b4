"""From reports to signed manifests."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck import __version__
from envcheck.core.model import Inventory, Report
from envcheck.errors import UsageError

if TYPE_CHECKING:
    from envcheck.sign import SigningKey

PASSPHRASE = "ENVCHECK_PASSPHRASE"


def load_key(options: argparse.Namespace) -> SigningKey | None:
    """Load the key before the work is done; raises UsageError for half of a request."""
    if (options.sign is None) != (options.output is None):
        missing = "-o FILE" if options.output is None else "--sign KEY"
        message = "--sign and -o belong together: a manifest is signed and written"
        raise UsageError(message, remedy=f"add {missing}")
    if options.sign is None:
        return None
    if len({t.name for t in options.arch}) > 1 and not options.output.is_dir():
        if options.output.exists() or options.output.suffix:
            message = f"{options.output}: with several --arch, -o must be a folder"
            raise UsageError(message, remedy="-o manifests/")
        options.output.mkdir(parents=True)
    from envcheck import sign

    key = sign.load_signer(options.sign, passphrase=passphrase)
    if key.warning:
        print(f"envcheck: warning: {key.warning}", file=sys.stderr)
    return key


def seal(
    options: argparse.Namespace,
    inventory: Inventory,
    report: Report,
    key: SigningKey,
    started: str,
) -> None:
    """Write the signed manifest of one report: into -o, or into a file of its own there."""
    import hashlib

    from envcheck import atomic, attest, sign
    from envcheck import targets as catalogue

    digest = hashlib.sha256(catalogue.data_file().read_bytes()).hexdigest()
    origin = attest.Origin(
        version=__version__, targets_digest=digest, started=started, finished=now()
    )
    path: Path = options.output
    path = path / f"{report.target.name}.json" if path.is_dir() else path
    atomic.write(path, sign.seal(attest.attest(inventory, report, origin), key))
    if not options.quiet:
        print(f"envcheck: manifest written: {path}", file=sys.stderr)


def passphrase() -> bytes:
    """Return the passphrase of the key: from the variable, or from whoever is there."""
    known = os.environ.get(PASSPHRASE)
    if known is not None:
        return known.encode()
    if not sys.stdin.isatty():
        message = "the key is encrypted and nobody is there to ask"
        raise UsageError(message, remedy=f"set {PASSPHRASE}")
    import getpass

    return getpass.getpass("passphrase of the key: ").encode()


def now() -> str:
    """Return the time as RFC 3339 in UTC, to the second."""
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
