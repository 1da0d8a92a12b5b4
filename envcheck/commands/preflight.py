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
from envcheck.errors import EnvcheckError, FileUnavailable

if TYPE_CHECKING:
    from envcheck.core.model import Target
    from envcheck.preflight import Depth, Plan

_NO_MANIFEST = "no manifest written: it would be about the environment, which was not looked at"


def preflight(options: argparse.Namespace) -> int:
    """Look at the machine and the environment on it; the exit code is that of the verdict."""
    from envcheck import preflight, redact, targets
    from envcheck.engine import local
    from envcheck.output.steps import table

    started = now()
    for path in (options.output, options.save_inventory):
        require_writable(path)
    python = local.resolve(options.python or sys.executable)
    local.require_version(python)
    options.arch = []
    key = load_key(options)
    if options.expect is not None:
        targets.resolve(options.expect)
    with table(quiet=options.quiet) as shown:
        begun = time.monotonic()
        shown.begins(preflight.FIRST)
        options.arch = [_target(options.expect)]
        inventory = preflight.look(_plan(options, options.arch[0], python), shown, begun)
    if options.redact or (options.redact is None and options.format == "markdown"):
        inventory = redact.inventory(inventory, redact.salt(os.environ.get(redact.SALT)))
    reports = judged(options, inventory)
    try:
        save(options, inventory)
        if key is not None and inventory.environment is not None:
            seal(options, inventory, reports[0], key, started)
        elif key is not None:
            print(f"envcheck: {_NO_MANIFEST}", file=sys.stderr)
    except EnvcheckError:
        answer(options, reports)  # it was paid for, whatever becomes of its files
        raise
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


def _plan(options: argparse.Namespace, target: Target, python: str) -> Plan:
    from envcheck import asking, targets
    from envcheck.core.machine import Asked
    from envcheck.preflight import Plan

    return Plan(
        python=python,
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
        keep_going=options.keep_going,
    )


def _depth(options: argparse.Namespace) -> Depth:
    from envcheck.preflight import FULL, QUICK, USUAL

    if options.budget is not None:
        return replace(USUAL, budget=options.budget)
    return QUICK if options.quick else FULL if options.full else USUAL
