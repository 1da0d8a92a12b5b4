"""What each card does when it is asked to: launches, copies, and a test of its memory.

Everything goes through libcuda alone, so that it works beside a broken environment too. Each card
is asked in a child of its own, which may hang or crash; what it had found until then is kept.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.compiled import Outcome
from envcheck.core.driver_facts import DriverCard
from envcheck.core.tried import Copied, Held, Launches, Link, Stopped, Tried
from envcheck.guest import bandwidth, host_link, launching, memory_test, trial, words
from envcheck.guest.device import OUT_OF_MEMORY, Device
from envcheck.guest.driver import LIBRARY, Driver, DriverFailed
from envcheck.guest.journal import Journal

_START = 25.0
"""Seconds more than the work itself that a child may take: the driver's start, and a call that
cannot be interrupted. It took 0.5 s on an H200, and takes several where many cards are."""
_KINDS = {"launches": Launches, "link": Link, "copied": Copied, "held": Held}
_SHARE = {"launches": 0.1, "link": 0.4, "copied": 0.5, "held": 1.0}
"""The part of a card's time at which a step must be done, for those that could take longer."""
_NO_TIME = "no time was left"


def try_cards(
    cards: Cards, seconds: float, *, full: bool = False, library: str = LIBRARY
) -> tuple[Tried, ...]:
    """Try each card that the driver shows, one after the other: they share the host's memory.

    `seconds` bounds the work on all of them together, but for each child's start; with `full` the
    test of memory goes on to the end of that time, else it ends when each pattern was there once.
    """
    shown = cards.driver.cards if cards.driver is not None else ()
    until = time.monotonic() + seconds
    done = []
    for index, card in enumerate(shown):
        share = max(until - time.monotonic(), 0.0) / (len(shown) - index)
        done.append(_try(index, card, share, full=full, library=library))
    return tuple(done)


def _try(index: int, card: DriverCard, seconds: float, *, full: bool, library: str) -> Tried:
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        journal = Journal(os.path.join(folder, "steps"))
        work = partial(_work, index, seconds, full, library, journal)
        ended = trial.run(work, deadline=seconds + _START)
        lines = journal.lines()
    found: dict[str, Any] = {}
    stopped: list[Stopped] = []
    left: dict[str, str] = {}
    at = "start"
    for kind, value in lines:
        if kind == "begun":
            at = value
        elif kind == "left":
            left |= value
        elif kind == "stopped":
            stopped.append(codec.from_json(Stopped, value, "stopped"))
        else:
            found[kind] = codec.from_json(_KINDS[kind], value, kind)
    if not ended.outcome.ok:
        stopped.append(_of_outcome(at, ended.outcome))
    for step in _KINDS:
        if step not in found and step not in left and step not in {s.step for s in stopped}:
            left[step] = f"ended before, by {stopped[-1].error}" if stopped else _NO_TIME
    return Tried(uuid=card.uuid, name=card.name, stopped=tuple(stopped), left=left, **found)


def _of_outcome(step: str, outcome: Outcome) -> Stopped:
    return Stopped(step=step, error=words.reason(outcome), hung=outcome.status == "timed-out")


def _work(index: int, seconds: float, full: bool, library: str, journal: Journal) -> None:  # noqa: FBT001
    """Do all steps on one card and write down each when it is done; runs in a child."""
    step = "start"
    try:
        device = Device(Driver(library), index)
        begun = time.monotonic()
        steps: dict[str, Callable[[float], object]] = {
            "launches": partial(launching.measure, device),
            "link": partial(host_link.measure, device),
            "copied": partial(bandwidth.measure, device),
            "held": partial(memory_test.run, device, full=full),
        }
        for step, work in steps.items():
            until = begun + seconds * _SHARE[step]
            if time.monotonic() >= until:
                journal.write("left", {step: _NO_TIME})
                continue
            journal.write("begun", step)
            try:
                journal.write(step, work(until))
            except DriverFailed as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                journal.write("stopped", Stopped(step=step, error=str(error)))
    except (DriverFailed, OSError) as error:
        # Most of the driver's errors stay with the context: no further step could succeed.
        journal.write("stopped", Stopped(step=step, error=str(error)))
