"""What NVIDIA_REQUIRE_CUDA asks of a host before its container may start.

`cuda>=12.8 brand=tesla,driver>=535,driver<536`: alternatives are separated by spaces, and what
stands in one of them, separated by commas, must hold together. Source: NVIDIA Container Toolkit,
"Constraints". The container runtime refuses to start where no alternative holds, unless
NVIDIA_DISABLE_REQUIRE is set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from envcheck.core import cuda
from envcheck.core.cuda import Version

_CONDITION = re.compile(r"(cuda|driver|arch|brand)\s*(>=|<=|!=|>|<|=)\s*([\w.]+)")


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison."""

    what: str
    """`cuda`, `driver`, `arch` or `brand`."""
    operator: str
    value: str

    def holds(self, driver: Version) -> bool | None:
        """Say whether it does on a host with a driver; None where that does not tell."""
        have = {"driver": driver, "cuda": cuda.cuda_of_driver(driver)}.get(self.what)
        if have is None:
            return None
        want = cuda.parse_version(self.value)
        width = max(len(have), len(want))
        left, right = (v + (0,) * (width - len(v)) for v in (have, want))
        return {
            ">=": left >= right, "<=": left <= right, ">": left > right,
            "<": left < right, "=": left == right, "!=": left != right,
        }[self.operator]  # fmt: skip


def parse(text: str) -> tuple[tuple[Condition, ...], ...] | None:
    """Read the alternatives; None where something in it is no condition."""
    alternatives = []
    for part in text.split():
        conditions = []
        for word in part.split(","):
            match = _CONDITION.fullmatch(word)
            if match is None:
                return None
            condition = Condition(match[1], match[2], match[3])
            if condition.what in ("cuda", "driver"):
                try:
                    cuda.parse_version(condition.value)
                except ValueError:
                    return None
            conditions.append(condition)
        alternatives.append(tuple(conditions))
    return tuple(alternatives)


def admits(alternatives: tuple[tuple[Condition, ...], ...], driver: Version) -> bool | None:
    """Say whether a host with a driver may start it; None where its card decides."""
    answers = []
    for conditions in alternatives:
        held = [condition.holds(driver) for condition in conditions]
        answers.append(False if False in held else None if None in held else True)
    if not answers or True in answers:
        return True
    return None if None in answers else False


def least_driver(alternatives: tuple[tuple[Condition, ...], ...]) -> Version | None:
    """Return the oldest driver that any card may have, None where none is asked for.

    Alternatives that name a brand let some cards in with older drivers; those are meant for the
    compatibility package, and left out.
    """
    least = []
    for conditions in alternatives:
        if any(condition.what in ("brand", "arch") for condition in conditions):
            continue
        floors = [_floor(condition) for condition in conditions if condition.operator == ">="]
        least.append(max((floor for floor in floors if floor is not None), default=None))
    known = [floor for floor in least if floor is not None]
    return min(known) if known and len(known) == len(least) else None


def _floor(condition: Condition) -> Version | None:
    version = cuda.parse_version(condition.value)
    return version if condition.what == "driver" else cuda.driver_of_cuda(version)
