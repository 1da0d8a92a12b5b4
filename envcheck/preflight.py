"""A rental looked at from the cheapest reason to give it back to the dearest.

What needs no card comes first, then what the driver says, then what the card does by itself, and
last the environment on it. After each step what is known is judged: a machine that is unfit costs
no further minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envcheck import native, pipeline
from envcheck.asking import Wish
from envcheck.core import cuda
from envcheck.core.decision import unfit
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding, Inventory, Status
from envcheck.errors import EnvcheckError
from envcheck.guest import devices, exchange, host, nodes, trying
from envcheck.guest.watching import Watcher
from envcheck.judge import judge

if TYPE_CHECKING:
    from envcheck.output.steps import Shown

_BESIDE = 2.3
"""Seconds of a budget for what comes before the command begins and after the last step: on a
machine with an H200 it was 1.2 to 2.2 s."""
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


QUICK = Depth(budget=20.0, host=1.0, tried=2.0, exchanged=4.0, rate=2.0)
USUAL = Depth(budget=60.0, host=3.0, tried=5.0, exchanged=8.0, rate=4.0)
FULL = Depth(budget=600.0, host=20.0, tried=90.0, exchanged=60.0, rate=120.0, full=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to look at, and for how long."""

    python: str
    wish: Wish
    asked: Asked
    depth: Depth
    keep_going: bool = False
    """Whether to go on when the machine is known to be unfit."""
    hide: Callable[[Inventory], Inventory] | None = None
    """Takes out what nobody is shown; None where everything may be."""


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    fields: tuple[str, ...]
    """Of `Machine`, which it fills."""
    work: Callable[[_Run], None]


@dataclass(slots=True)
class _Run:
    plan: Plan
    shown: Shown
    begun: float
    """When the driver was asked, on the clock that only goes on."""
    until: float
    machine: Machine
    rest: Inventory = field(default_factory=lambda: Inventory(source="environment"))
    watched: Watcher | None = None
    reason: str | None = None
    """Why no further step is taken; None as long as one is."""
    told: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def inventory(self) -> Inventory:
        whole = replace(self.rest, machine=self.machine)
        return whole if self.plan.hide is None else self.plan.hide(whole)

    def take(self, step: _Step, *, always: bool = False) -> None:
        """Take a step and judge what is known then, unless the machine is known to be unfit."""
        if self.reason is not None and not always:
            left = {**self.machine.left, **dict.fromkeys(step.fields, self.reason)}
            self.machine = replace(self.machine, left=left)
            self.shown.leaves(step.name, self.reason)
            return
        started = self.begun if step is _BEFORE[0] else time.monotonic()
        self.shown.begins(step.name)
        step.work(self)
        findings = self.judged()
        why = next((self.machine.left[f] for f in step.fields if f in self.machine.left), None)
        if why is not None:
            self.shown.leaves(step.name, why)
        else:
            self.shown.ends(step.name, time.monotonic() - started, self.news(findings))
        worst = unfit(findings)
        if worst and not self.plan.keep_going and self.reason is None:
            self.reason = f"not looked at, because {worst[0].check} failed; --keep-going looks on"

    def fails(self, part: str, how: str) -> None:
        """Keep how a part ended without an answer: what is known of the others was paid for."""
        self.machine = replace(self.machine, failed={**self.machine.failed, part: how})

    def judged(self) -> tuple[Finding, ...]:
        module = self.machine.cards.module
        driver = None if module is None else cuda.parse_version(module)
        return judge(self.plan.wish.target, self.inventory, driver).findings

    def news(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return what was not known before the last step."""
        new = [f for f in findings if f.status is not Status.SKIP and _key(f) not in self.told]
        self.told |= {_key(f) for f in new}
        return new


def look(plan: Plan, shown: Shown, begun: float) -> Inventory:
    """Take all steps that are worth it; returns what they found out.

    `begun` is when the driver was asked for its cards, which is before anything is planned.
    """
    machine = Machine(asked=plan.asked, cards=native.cards())
    run = _Run(plan, shown, begun, begun + plan.depth.budget - _BESIDE, machine)
    for step in _BEFORE:
        run.take(step)
    with Watcher() if run.reason is None else nullcontext() as run.watched:
        for step in _AT_WORK:
            run.take(step)
    run.take(_AFTER, always=True)
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
    found = exchange.exchange(run.machine.cards, run.plan.depth.exchanged)
    left = {} if found is not None else {"exchanged": "there are not two cards"}
    run.machine = replace(run.machine, exchanged=found, left={**run.machine.left, **left})


def _environment(run: _Run) -> None:
    plan = run.plan
    left = max(run.until - time.monotonic(), _LEAST)
    wish = replace(plan.wish, budget=left, rate=plan.depth.rate, exchange=True)
    try:
        run.rest = pipeline.collect(plan.python, lambda *_: None, lambda _: None, wish)
    except EnvcheckError as error:
        run.fails("environment", error.message)
    except OSError as error:
        run.fails("environment", f"{error.filename or 'temporary files'}: {error.strerror}")


def _after(run: _Run) -> None:
    watched = run.watched.result() if run.watched is not None else None
    if run.watched is not None and watched is None:
        run.fails("watched", run.watched.why)
    run.machine = replace(run.machine, watched=watched, nodes_after=nodes.nodes())


FIRST = "driver"
_BEFORE = (
    _Step(FIRST, (), _driver),
    _Step("host", ("host",), _host),
    _Step("cards", ("managed",), _managed),
)
_AT_WORK = (
    _Step("card", ("tried", "watched"), _card),
    _Step("between cards", ("exchanged",), _exchanged),
    _Step("environment", (), _environment),
)
_AFTER = _Step("after", (), _after)
