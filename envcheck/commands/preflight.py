"""`envcheck preflight`: keep the machine, or give it back."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from envcheck.commands.documents import require_writable, save
from envcheck.commands.judging import answer, judged
from envcheck.commands.sealing import load_key, now, seal
from envcheck.errors import FileUnavailable

if TYPE_CHECKING:
    from envcheck.core.model import Target
    from envcheck.preflight import Depth, Plan


def preflight(options: argparse.Namespace) -> int:
    """Look at the machine and the environment on it; the exit code is that of the verdict."""
    from envcheck import preflight, redact
    from envcheck.output.steps import table

    started, began = now(), time.monotonic()
    options.arch = [_target(options.expect)]
    key = load_key(options)
    for path in (options.output, options.save_inventory):
        require_writable(path)
    with table(quiet=options.quiet) as shown:
        inventory = preflight.look(_plan(options, options.arch[0], began), shown)
    if options.redact or (options.redact is None and options.format == "markdown"):
        inventory = redact.inventory(inventory, redact.salt(os.environ.get(redact.SALT)))
    save(options, inventory)
    reports = judged(options, inventory)
    if key is not None:
        seal(options, inventory, reports[0], key, started)
    return answer(options, reports)


def _target(expected: str | None) -> Target:
    """Return the card that is here; where there is none, what was rented.

    Raises FileUnavailable where neither is known: then there is nothing to judge for.
    """
    from envcheck import native, targets

    try:
        return native.target()
    except FileUnavailable as error:
        if expected is not None:
            return targets.resolve(expected)
        message = f"give back: {error.message}"
        raise FileUnavailable(message, remedy=error.remedy) from None


def _plan(options: argparse.Namespace, target: Target, began: float) -> Plan:
    from envcheck import asking, targets
    from envcheck.core.machine import Asked
    from envcheck.engine import named_python
    from envcheck.preflight import Plan

    return Plan(
        python=named_python.resolve(options.python or sys.executable),
        wish=asking.of_settings(options.settings, target, seed=options.seed),
        asked=Asked(
            expect=options.expect,
            expected=None if options.expect is None else targets.expected(options.expect),
            gpus=options.gpus,
            disk=options.disk,
            shm=options.shm,
            workers=options.workers,
            folder=str(options.data),
        ),
        depth=_depth(options),
        began=began,
        keep_going=options.keep_going,
    )


def _depth(options: argparse.Namespace) -> Depth:
    from envcheck.preflight import FULL, QUICK, USUAL

    if options.budget is not None:
        return replace(USUAL, budget=options.budget)
    return QUICK if options.quick else FULL if options.full else USUAL
