"""What the kernels of `ptx/memory.cu` write and find: the same words, worked out in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.core.tried import Mismatch

ADDRESS, RANDOM, WALKING = 0, 1, 2
"""As in memory.cu."""
KEPT = 8
"""Mismatches that a report tells one by one, as in memory.cu."""
WORD = 8
_ALL = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to fill memory: a word for each index."""

    name: str
    kind: int
    seed: int = 0
    mask: int = 0
    """Bits that are turned over."""

    def word(self, index: int) -> int:
        """Return what stands at an index."""
        value = index
        if self.kind == RANDOM:
            value = _random(index ^ (self.seed << 48 & _ALL))
        elif self.kind == WALKING:
            value = 1 << ((index + self.seed) & 63)
        return value ^ self.mask


class Report(ctypes.Structure):
    """What `verify` leaves, as in memory.cu."""

    _fields_ = (
        ("count", ctypes.c_uint64),
        ("bits", ctypes.c_uint64),
        ("first", ctypes.c_uint64 * 3 * KEPT),
    )

    def mismatches(self) -> tuple[Mismatch, ...]:
        """Return those that were told one by one, by address."""
        told = sorted(tuple(row) for row in self.first[: min(self.count, KEPT)])
        return tuple(
            Mismatch(offset=index * WORD, expected=f"{expected:#018x}", found=f"{found:#018x}")
            for index, expected, found in told
        )


def in_turn() -> Iterator[Pattern]:
    """Yield patterns without end, those first that find the most.

    Own addresses show two addresses that are one cell, and lines that are swapped; random words
    and their complement put each bit into both states beside neighbours in any state; a bit that
    walks through zeros and one through ones show lines that hold each other (the usual order of
    memory tests: MemTest86, cuda_memtest).
    """
    seed = 0
    while True:
        if not seed:
            yield Pattern("address", ADDRESS)
        yield Pattern("random", RANDOM, seed)
        yield Pattern("random, turned over", RANDOM, seed, _ALL)
        yield Pattern("walking one", WALKING, seed)
        yield Pattern("walking zero", WALKING, seed, _ALL)
        if not seed:
            yield Pattern("address, turned over", ADDRESS, 0, _ALL)
        seed += 1


def _random(counter: int) -> int:
    z = (counter + 1) * 0x9E3779B97F4A7C15 & _ALL
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _ALL
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _ALL
    return z ^ (z >> 31)
