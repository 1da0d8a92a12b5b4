"""`envcheck compare`: what changed from one saved look to others, and what no longer works."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from envcheck import document
from envcheck.commands.documents import write
from envcheck.core import codec
from envcheck.core.compared import Comparisons, Saved
from envcheck.core.model import (
    INVENTORY_SCHEMA,
    REPORT_SCHEMA,
    REPORTS_SCHEMA,
    Inventory,
    Report,
)
from envcheck.errors import DocumentInvalid, UsageError


def compare(options: argparse.Namespace) -> int:
    """Compare the first file with each of the others."""
    from envcheck.comparison import compare as part

    if len(options.files) < 2:
        message = "there is nothing to compare it with: two files or more"
        raise UsageError(message, remedy="envcheck compare BEFORE.json AFTER.json")
    saved = [_read(path, options.key) for path in options.files]
    _say_unverified(saved)
    found = part.compare(saved[0], saved[1:])
    _print(options, found)
    return found.exit_code


def _say_unverified(saved: list[Saved]) -> None:
    unverified = [s.name for s in saved if not s.verified]
    if unverified:
        which = (
            "nothing" if len(unverified) == len(saved) else f"nothing of {', '.join(unverified)}"
        )
        print(f"envcheck: {which} was verified: no signature was checked", file=sys.stderr)


def _print(options: argparse.Namespace, found: Comparisons) -> None:
    if options.format == "json":
        write(codec.dumps(found).encode())
    elif options.format == "markdown":
        from envcheck.output import comparison_markdown

        write(comparison_markdown.render(found, verbose=options.verbose).encode())
    else:
        from envcheck.output import comparison

        verbosity = -1 if options.quiet else int(options.verbose)
        comparison.render(found, sys.stdout, verbosity=verbosity)


def _read(path: Path, keys: list[Path]) -> Saved:
    """Read a manifest, an inventory or a report; raises DocumentInvalid for anything else."""
    name, content = str(path), document.read(path)
    data = codec.parse(content, name=name)
    if isinstance(data, dict) and "payload" in data:
        return _manifest(name, content, keys)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == INVENTORY_SCHEMA:
        return Saved(name=name, inventory=codec.from_json(Inventory, data, name))
    if schema == REPORT_SCHEMA:
        return Saved(name=name, report=codec.from_json(Report, data, name))
    if schema == REPORTS_SCHEMA:
        message = f"{name}: holds several reports, and one is compared"
        raise DocumentInvalid(message, remedy="make it with one --arch")
    message = f"{name}: neither a manifest nor a saved inventory or report"
    raise DocumentInvalid(
        message, remedy="check --sign, --save-inventory or --format json makes one"
    )


def _manifest(name: str, content: bytes, keys: list[Path]) -> Saved:
    from envcheck import attest, sign

    payload = sign.open_envelope(content, keys) if keys else sign.open_unverified(content)
    manifest = attest.read_statement(payload)
    return Saved(
        name=name,
        verified=bool(keys),
        finished=manifest.finished,
        inventory=manifest.inventory,
        report=manifest.report,
    )
