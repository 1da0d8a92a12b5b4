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
    from collections.abc import Callable

    from envcheck.core.model import Inventory, Target
    from envcheck.preflight import Depth, Plan


def preflight(options: argparse.Namespace) -> int:
    """Look at the machine and the environment on it; the exit code is that of the verdict."""
    from envcheck import preflight, targets
    from envcheck.engine import local, named_python
    from envcheck.output.steps import table

    started, began = now(), time.monotonic()
    for path in (options.output, options.save_inventory):
        require_writable(path)
    python = named_python.resolve(options.python or sys.executable)
    local.require_version(python)
    options.arch = []
    key = load_key(options)
    if options.expect is not None:
        targets.resolve(options.expect)
    with table(quiet=options.quiet) as shown:
        shown.begins(preflight.FIRST)
        options.arch = [_target(options.expect)]
        inventory = preflight.look(_plan(options, options.arch[0], python), shown, began)
    reports = judged(options, inventory)
    try:
        save(options, inventory)
        if key is not None and inventory.environment is None:
            # A manifest is about an environment, and this machine is unfit for any.
            print(f"envcheck: {options.output} was not written: the environment was not looked at"
                  " (--keep-going does)", file=sys.stderr)  # fmt: skip
        elif key is not None:
            seal(options, inventory, reports[0], key, started)
    finally:
        # Whatever becomes of the files, what was found out is not lost.
        code = answer(options, reports)
    return code


def _hide(options: argparse.Namespace) -> Callable[[Inventory], Inventory] | None:
    """Return what takes the names out of all that is printed and kept, with one salt."""
    if not (options.redact or (options.redact is None and options.format == "markdown")):
        return None
    from envcheck import redact

    key = redact.salt(os.environ.get(redact.SALT))
    return lambda inventory: redact.inventory(inventory, key)


def _target(expected: str | None) -> Target:
    """Return the card that is here; where there is none, what was rented.

    Raises FileUnavailable where neither is known: then there is nothing to judge for.
    """
    from envcheck import native, targets
    from envcheck.core import decision, unusable

    try:
        return native.target()
    except FileUnavailable as error:
        if expected is not None:
            return targets.resolve(expected)
        cause = unusable.unusable(native.cards())
        # What a variable or the image hides is no reason to give a machine back.
        mended = cause is not None and cause.domain not in decision.OF_MACHINE
        message = error.message if mended else f"{decision.BACK}: {error.message}"
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
        hide=_hide(options),
    )


def _depth(options: argparse.Namespace) -> Depth:
    from envcheck.preflight import FULL, QUICK, USUAL

    if options.budget is not None:
        return replace(USUAL, budget=options.budget)
    return QUICK if options.quick else FULL if options.full else USUAL
