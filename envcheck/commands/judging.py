"""From an inventory to the answer: judge, print, and the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from envcheck.commands.documents import write
from envcheck.core import cuda
from envcheck.core.cuda import Version
from envcheck.core.model import Inventory, Report, Target, Verdict

_WORST = (Verdict.COMPATIBLE, Verdict.INCONCLUSIVE, Verdict.INCOMPATIBLE)


def judged(options: argparse.Namespace, inventory: Inventory) -> list[Report]:
    """Judge an inventory for each --arch, each once."""
    from envcheck import choosing
    from envcheck.judge import judge

    asked = choosing.chosen(options.only, options.skip)
    wanted: dict[str, Target] = {t.name: t for t in options.arch}
    return [
        judge(t, inventory, driver(options, t, inventory), require=options.require, asked=asked)
        for t in wanted.values()
    ]


def driver(options: argparse.Namespace, target: Target, inventory: Inventory) -> Version | None:
    """Return the driver to judge for: the one that was named, or that of the card here."""
    named: Version | None = options.driver
    if named is not None or target.card is None:
        return named
    environment, machine = inventory.environment, inventory.machine
    here = environment.driver if environment is not None else None
    if here is None and machine is not None:
        here = machine.cards.module
    return None if here is None else cuda.parse_version(here)


def answer(options: argparse.Namespace, reports: list[Report]) -> int:
    """Print the reports and return the exit code of the worst."""
    if options.format == "json":
        from envcheck.output import json

        write(json.render(reports).encode())
    elif options.format == "markdown":
        from envcheck.output import markdown

        write(markdown.render(reports, verbose=options.verbose).encode())
    else:
        from envcheck.output import text

        verbosity = int(options.verbose) - 2 * int(options.quiet)
        text.render(reports, sys.stdout, verbosity=max(-1, verbosity))
        sys.stdout.write("".join(f"{line}\n" for line in text.decisions(reports)))
    return worst(r.verdict for r in reports).exit_code


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that decides the exit code of several."""
    return max(verdicts, key=_WORST.index)
