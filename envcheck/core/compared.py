"""How one saved look at a machine differs from another: values, free of I/O.

`before` is what the first of them says, `after` what the other says; None is what one of them
does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from envcheck.core.model import Inventory, Report

COMPARISON_SCHEMA = "envcheck/comparison/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What is compared: facts, a judgement of them, or both."""

    name: str
    """Of the file."""
    verified: bool = False
    """Whether a signature by a given key vouches for it."""
    finished: str | None = None
    """When a manifest was made."""
    inventory: Inventory | None = None
    report: Report | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two, as far as a reader of the comparison must know it."""

    name: str
    verified: bool
    finished: str | None = None
    target: str | None = None
    verdict: str | None = None
    assurance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that is not the same: a version, a driver, a card, a variable."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What became of one check, or of one subject of it."""

    check: str
    subject: str | None = None
    """Without its version; None for the check as a whole."""
    before: str | None
    """The worst status."""
    after: str | None
    message: str = ""
    """Of the other's worst finding, where its status is another one."""
    lost: bool = False
    """Whether it passed, or warned, and now fails."""


class Likeness(str, Enum):
    """What one run is beside the same run elsewhere."""

    IDENTICAL = "identical"
    """The same operands gave the same bytes."""
    WITHIN = "within-bounds"
    """Other bytes, and both as near to float64 as arithmetic allows."""
    DRIFT = "drift"
    """Within its bounds in the first, not in the other."""
    INCOMPATIBLE = "incompatible"
    """It ran in the first, and fails in the other."""
    REPAIRED = "repaired"
    """It failed or was off in the first, and holds in the other."""
    WRONG = "wrong-in-both"
    NOT_COMPARABLE = "not-comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One side of a run, in numbers."""

    status: str
    """How it ended: `ok`, `raised`, `crashed`, `not-applicable` where it was not run."""
    holds: bool
    """Whether it ran, and every output is within its bounds."""
    seed: int
    worst: float | None = None
    """The worst element of any output in units of its bound."""
    relative: float | None = None
    """The largest relative error of any output."""
    milliseconds: float | None = None
    first: float | None = None
    retained: int | None = None
    """Bytes of memory that another call kept."""
    kernels: tuple[str, ...] | None = None
    """None where it was not looked at which ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One operation, kernel or function of an extension, beside itself."""

    part: str
    family: str
    op: str
    dtype: str
    case: str
    direction: str
    likeness: Likeness
    reason: str = ""
    """Why it is not comparable, or what is wrong with the other."""
    before: Measure | None
    after: Measure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Something that was compiled, built or imported, where both tried it."""

    name: str
    before: str
    """How it ended: `ok`, `raised`, `crashed`."""
    after: str
    message: str = ""
    """Why it failed in the other."""
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One number that was measured, side by side."""

    name: str
    unit: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The first beside one other."""

    other: Side
    distributions: tuple[Change, ...] = ()
    """Before None: it came. After None: it is gone."""
    facts: tuple[Change, ...] = ()
    checks: tuple[Checked, ...] = ()
    """Each check, and below it the subjects whose status changed."""
    runs: tuple[Ran, ...] = ()
    made: tuple[Made, ...] = ()
    rates: tuple[Rate, ...] = ()
    left: tuple[str, ...] = ()
    """What could not be compared, and why."""
    compared: int = 0
    """Checks, runs and compilations that were looked at in both."""
    unseen: tuple[str, ...] = ()
    """What passed in the first and was not looked at in the other."""
    lost: tuple[str, ...] = ()
    """What passed in the first and fails in the other."""

    @property
    def differs(self) -> bool:
        """Whether anything but a measured number is another one."""
        alike = (Likeness.IDENTICAL, Likeness.WRONG, Likeness.NOT_COMPARABLE)
        return bool(
            self.distributions
            or self.facts
            or self.lost
            or self.unseen
            or any(c.before != c.after for c in self.checks)
            or any(m.before != m.after for m in self.made)
            or any(r.likeness not in alike for r in self.runs)
            or any((r.before is None) != (r.after is None) for r in self.runs)
        )

    @property
    def exit_code(self) -> int:
        """0 if nothing is lost, 10 if something is, 11 if nothing could be compared."""
        if self.lost:
            return 10
        return 0 if self.compared else 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """The first beside each of the others."""

    schema: str = COMPARISON_SCHEMA
    first: Side
    others: tuple[Comparison, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """The worst: 10 before 11 before 0."""
        return max((c.exit_code for c in self.others), key=(0, 11, 10).index, default=11)
