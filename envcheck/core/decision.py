"""Keep the machine, or give it back: what a report says about a rental, in one word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from envcheck.core.model import Domain, Finding, Status

KEEP, RESERVED, BACK = "keep", "keep with reservations", "give back"
TELLING = (
    "card-is-the-one-rented",
    "device-memory-holds-what-is-written",
    "repeated-work-is-bit-equal",
    "matrix-units-are-fast",
    "device-memory-is-fast",
    "card-is-healthy",
    "driver-starts",
)
"""The checks whose passes say most of a machine, in order."""
AT_WORK = (
    "device-memory-holds-what-is-written",
    "repeated-work-is-bit-equal",
    "matrix-units-are-fast",
    "device-memory-is-fast",
)
"""Those of them that a card passes by what it did: names and counters alone speak for none."""
_SHOWN = 3
OF_MACHINE = (Domain.HOST, Domain.CARD)
"""Whose fault gives a machine back."""
_BAD = (Status.FAIL, Status.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do with a machine, and the facts that decide it."""

    word: str
    """`keep`, `keep with reservations` or `give back`."""
    facts: tuple[str, ...]
    """Three at most, the weightiest first."""

    @property
    def line(self) -> str:
        """The whole of it in one line."""
        return f"{self.word}: {'; '.join(self.facts)}" if self.facts else self.word


def unfit(findings: Iterable[Finding]) -> list[Finding]:
    """Return what makes the machine itself unfit, whatever the environment is like."""
    return [f for f in findings if f.required and f.status in _BAD and f.domain in OF_MACHINE]


def decide(
    findings: Sequence[Finding],
    telling: Sequence[str] = TELLING,
    at_work: Sequence[str] = AT_WORK,
) -> Decision:
    """Fold findings into what to do with the machine.

    Only what is the host's or the card's fault gives it back: an environment can be mended, on
    this machine as on another. `telling` are the checks whose passes say most, in order, and
    one of `at_work` must have passed for a machine to be kept.
    """
    worst = unfit(findings)
    if worst:
        return Decision(word=BACK, facts=_facts(worst))
    deciding = [f for f in findings if f.required]
    bad = [f for f in deciding if f.status in _BAD]
    warned = [f for f in deciding if f.status is Status.WARN and f.domain in OF_MACHINE]
    undone = [f for f in deciding if f.status is Status.SKIP]
    if bad or warned or undone:
        return Decision(word=RESERVED, facts=_facts([*bad, *warned, *undone]))
    passes = {f.check: f for f in reversed(findings) if f.status is Status.PASS}
    if passes.keys().isdisjoint(at_work):
        idle = _facts(f for f in findings if f.check in at_work and f.status is Status.SKIP)
        return Decision(word=RESERVED, facts=idle or ("nothing of the machine was looked at",))
    return Decision(word=KEEP, facts=_facts(passes[check] for check in telling if check in passes))


def _facts(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Name the first findings, of each check one before any second."""
    found = list(findings)
    first = {finding.check: finding for finding in reversed(found)}
    ranked = sorted(found, key=lambda f: first[f.check] is not f)
    chosen = ranked[:_SHOWN]
    return tuple(f"{f.subject}: {f.message}" for f in chosen)
