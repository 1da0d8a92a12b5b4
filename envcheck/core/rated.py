"""How fast a card multiplies, and whether it keeps giving the same: facts, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One product of two square matrices of random numbers, again and again."""

    card: int = 0
    """Its number among those that a job sees; all of them are at work together."""
    name: str = ""
    """`NVIDIA H200`; empty for the processor."""
    dtype: str
    """`bf16`, `fp16`, `tf32` or `fp8` (e4m3)."""
    size: int
    """Rows and columns of each matrix."""
    tflops: float
    """1e12 operations a second: the median product, once clocks had time to settle."""
    tflops_at_first: float
    """The same of the first products: clocks of a card that was idle have yet to rise."""
    milliseconds: float
    """Of the median product."""
    repetitions: int
    seconds: float
    """That all of them took."""
    clock: int | None = None
    """Of the multiprocessors while they worked, in MHz; None where NVML was not to be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first repetition that differed from the first product, and where."""

    repetition: int
    """Counted from 1; the product that it is compared with is none of them."""
    elements: int
    """That differ."""
    positions: tuple[str, ...]
    """`row,column` of the first few."""
    expected: tuple[str, ...]
    """What the first product has there."""
    found: tuple[str, ...]
    flipped: tuple[str, ...]
    """The bits in which they differ: `0x8` is a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """One product of the same operands again and again, each compared with the first bit by bit."""

    card: int = 0
    dtype: str
    """`fp32` is without TF32."""
    size: int
    repetitions: int
    seconds: float
    mismatches: int
    """Repetitions that differ from the first product."""
    first: Mismatch | None = None
    rows: int
    """Of the first product, all columns, that were compared with float64."""
    finite: bool
    """Whether these are all numbers."""
    worst: float | None
    """Their worst element in units of its bound; None where one is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """Products of matrices by PyTorch: their rates, and what repeating one gave."""

    cards: int = 1
    """That were asked, each by a process of its own."""
    seconds: float = 0.0
    rates: tuple[Rate, ...] = ()
    burns: tuple[Burn, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    """What was not measured and why: `fp8`, `burn fp32 on card 1`."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """What raised an error or ended its process, and the line that says why."""


def label(name: str, card: int) -> str:
    """Name a part on one card; the first goes without saying."""
    return f"{name} on card {card}" if card else name
