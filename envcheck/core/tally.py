"""The comparison of all objects of one run, counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from envcheck.core.agreement import AGREE, DISAGREE, UNDECIDABLE, Comparison
from envcheck.core.driver_facts import DriverCard

SCHEMA = "envcheck/selftest/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How often prediction and outcome agree in one group."""

    group: str
    count: int
    agree: int
    disagree: int
    undecidable: Mapping[str, int]
    """By reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selftest:
    """What one card did with each object, beside what was predicted."""

    schema: str
    card: DriverCard
    driver: str
    """The driver that was judged for."""
    groups: tuple[Tally, ...]
    objects: tuple[Comparison, ...]

    @property
    def exit_code(self) -> int:
        """0 where all agree, 10 where one disagrees, 11 where nothing could be compared."""
        if any(each.disagree for each in self.groups):
            return 10
        return 0 if any(each.agree for each in self.groups) else 11


def count(found: Iterable[Comparison]) -> tuple[Tally, ...]:
    """Count each group, in order of their names."""
    groups: dict[str, list[Comparison]] = {}
    for each in found:
        groups.setdefault(each.group, []).append(each)
    return tuple(_of(name, groups[name]) for name in sorted(groups))


def _of(group: str, found: list[Comparison]) -> Tally:
    reasons: dict[str, int] = {}
    for each in found:
        if each.agreement == UNDECIDABLE:
            reasons[each.reason] = reasons.get(each.reason, 0) + 1
    return Tally(
        group=group,
        count=len(found),
        agree=sum(each.agreement == AGREE for each in found),
        disagree=sum(each.agreement == DISAGREE for each in found),
        undecidable=reasons,
    )
