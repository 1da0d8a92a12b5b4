"""Commands that make keys, and read what was signed with them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from envcheck import document
from envcheck.commands.documents import save, write
from envcheck.commands.sealing import PASSPHRASE
from envcheck.errors import UsageError


def keygen(options: argparse.Namespace) -> int:
    """Make a key pair."""
    from envcheck import sign

    private: Path = options.output
    public = private.with_suffix(".pub")
    if public == private:
        message = f"{private}: the public key would get the same name"
        raise UsageError(message, remedy="-o key.pem")
    passphrase = os.environ.get(PASSPHRASE, "").encode() or None
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

    payload = sign.open_envelope(document.read(options.manifest), options.key)
    manifest = attest.read_statement(payload)
    save(options, manifest.inventory)
    if options.format == "json":
        write(payload + b"\n")
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
    decision = report.summary.get("decision")
    if isinstance(decision, Mapping):
        from envcheck.output.visible import visible

        print(visible(f"signed decision: {decision['word']}: {'; '.join(decision['facts'])}"))
    return 0


def _ask_twice() -> bytes:
    import getpass

    try:
        first = getpass.getpass("passphrase for the new key: ")
        second = getpass.getpass("again: ")
    except EOFError:
        message = "nobody is there to type a passphrase"
        raise UsageError(message, remedy=f"set {PASSPHRASE}") from None
    if not first or first != second:
        message = "the passphrases are empty or differ"
        raise UsageError(message, remedy="type the same passphrase twice")
    return first.encode()
