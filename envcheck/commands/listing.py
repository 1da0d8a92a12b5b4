"""Commands that tell what envcheck knows: architectures, cards, checks."""

from __future__ import annotations

import argparse
import sys

from envcheck.commands.documents import write
from envcheck.core import codec


def targets(options: argparse.Namespace) -> int:
    """List the known architectures and cards."""
    from envcheck import targets as catalogue

    known = catalogue.catalogue()
    if options.format == "json":
        write(codec.dumps({"schema": "envcheck/targets/v1", **codec.to_json(known)}).encode())
        return 0
    from envcheck.output import catalogue as listing

    listing.render(known, sys.stdout)
    return 0


def explain(options: argparse.Namespace) -> int:
    """Say what a check claims, how it looks, and what to do."""
    from envcheck import choosing
    from envcheck.checks import CHECKS
    from envcheck.output import explanation

    if options.check is None:
        explanation.render_list(CHECKS, sys.stdout)
        return 0
    found = next((c for c in CHECKS if c.id == options.check), None)
    if found is None:
        raise choosing.unknown(options.check, asked_by="envcheck explain")
    explanation.render(found, sys.stdout)
    return 0
