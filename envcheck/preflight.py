"""A rental looked at from the cheapest reason to give it back to the dearest.

What needs no card comes first, then what the driver says, then what the card does by itself, and
last the environment on it. After each step what is known is judged: a machine that is unfit costs
no further minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

from envcheck import native, pipeline
from envcheck.asking import Wish
from envcheck.core import cuda
from envcheck.core.decision import unfit
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding, Inventory, Status
from envcheck.guest import devices, exchange, host, trying
from envcheck.guest.cards import nodes
from envcheck.guest.watching import Watcher
from envcheck.judge import judge

_LEAST = 5.0
"""Seconds that the environment gets in any case: PyTorch alone needs them to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How long to look at what: seconds."""

    budget: float
    """All of it."""
    host: float
    tried: float
    """Each card's memory, links and launches."""
    exchanged: float
    rate: float
    """Products of matrices, and the same one again and again."""
    full: bool = False
    """Whether all patterns are written to all of the card's memory, however long that takes."""


QUICK = Depth(budget=20, host=1, tried=2, exchanged=4, rate=1.5)
USUAL = Depth(budget=60, host=3, tried=5, exchanged=8, rate=4)
FULL = Depth(budget=600, host=20, tried=90, exchanged=60, rate=120, full=True)


class Shown(Protocol):
    """Who sees what is going on."""

    def begins(self, step: str) -> None:
        """A step was begun."""

    def ends(self, step: str, seconds: float, findings: Sequence[Finding]) -> None:
        """It is over; `findings` are those that were not known before, skips apart."""

    def leaves(self, step: str, why: str) -> None:
        """A step is not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to look at, and for how long."""

    python: str
    wish: Wish
    asked: Asked
    depth: Depth
    keep_going: bool = False
    """Whether to go on when the machine is known to be unfit."""


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    fields: tuple[str, ...]
    """Of `Machine`, which it fills."""
    work: Callable[[_Run], None]


@dataclass(slots=True)
class _Run:
    plan: Plan
    until: float
    machine: Machine
    rest: Inventory = field(default_factory=lambda: Inventory(source="environment"))
    watcher: Watcher | None = None
    told: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def inventory(self) -> Inventory:
        return replace(self.rest, machine=self.machine)

    def judged(self) -> tuple[Finding, ...]:
        module = self.machine.cards.module
        driver = None if module is None else cuda.parse_version(module)
        return judge(self.plan.wish.target, self.inventory, driver).findings

    def news(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return what was not known before the last step."""
        new = [f for f in findings if f.status is not Status.SKIP and _key(f) not in self.told]
        self.told |= {_key(f) for f in new}
        return new


def look(plan: Plan, shown: Shown) -> Inventory:
    """Take all steps that are worth it; returns what they found out."""
    machine = Machine(asked=plan.asked, cards=native.cards())
    run = _Run(plan, time.monotonic() + plan.depth.budget, machine)
    with ExitStack() as stack:
        reason = None
        for step in _STEPS:
            if step.name == "card" and reason is None:
                run.watcher = stack.enter_context(Watcher())
            if reason is not None and step.name != "after":
                left = {**run.machine.left, **dict.fromkeys(step.fields, reason)}
                run.machine = replace(run.machine, left=left)
                shown.leaves(step.name, reason)
                continue
            shown.begins(step.name)
            started = time.monotonic()
            step.work(run)
            findings = run.judged()
            shown.ends(step.name, time.monotonic() - started, run.news(findings))
            if not plan.keep_going and (worst := unfit(findings)):
                reason = f"not looked at, as {worst[0].check} failed (--keep-going does)"
    return run.inventory


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.check, finding.subject, finding.status.value


def _driver(run: _Run) -> None:
    """Judge what the driver told: it was asked before."""


def _host(run: _Run) -> None:
    run.machine = replace(run.machine, host=host.look(run.plan.asked, run.plan.depth.host))


def _managed(run: _Run) -> None:
    run.machine = replace(run.machine, managed=devices.look())


def _card(run: _Run) -> None:
    depth = run.plan.depth
    tried = trying.try_cards(run.machine.cards, depth.tried, full=depth.full)
    run.machine = replace(run.machine, tried=tried)


def _exchanged(run: _Run) -> None:
    seconds = run.plan.depth.exchanged
    run.machine = replace(run.machine, exchanged=exchange.exchange(run.machine.cards, seconds))


def _environment(run: _Run) -> None:
    plan = run.plan
    left = max(run.until - time.monotonic(), _LEAST)
    wish = replace(plan.wish, budget=left, rate=plan.depth.rate, exchange=True)
    run.rest = pipeline.collect(plan.python, lambda *_: None, lambda _: None, wish)


def _after(run: _Run) -> None:
    watched = run.watcher.result() if run.watcher is not None else None
    run.machine = replace(run.machine, watched=watched, nodes_after=nodes())


_STEPS = (
    _Step("driver", (), _driver),
    _Step("host", ("host",), _host),
    _Step("cards", ("managed",), _managed),
    _Step("card", ("tried",), _card),
    _Step("between cards", ("exchanged",), _exchanged),
    _Step("environment", (), _environment),
    _Step("after", ("watched", "nodes_after"), _after),
)
"""In order; the last one is taken in any case."""
