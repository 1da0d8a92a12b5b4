"""What a kernel is fed with, and how far its outputs lie from their reference: measured, unjudged.

A kernel's `kernel.py` says which operands it wants; which numbers they hold is decided here:
random ones from a seed, and patterns whose result is known without any tolerance.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envcheck.core.kernels import FORMATS, Tolerance, growth

Tensor = Any
"""A torch.Tensor: torch is imported only where it is used."""

PATTERNS = ("random", "integers", "ones", "zeros")
_TORCH = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn",
    "int8": "int8",
    "int32": "int32",
}
_STORES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one output lies from its reference."""

    relative: float
    """Norm of the difference over the norm of the reference; infinite for a NaN."""
    worst: float
    """The worst element, in units of the bound that the tolerance gives it; infinite for a NaN."""


class Operands:
    """Makes the operands of one launch: hand it to `inputs` of a kernel."""

    def __init__(self, dtype: str, *, seed: int, pattern: str = "random", device: str) -> None:
        self._torch = importlib.import_module("torch")
        self._pattern, self._device = pattern, device
        self._dtype = getattr(self._torch, _TORCH[dtype])
        self._generator = self._torch.Generator().manual_seed(seed)

    def values(self, *size: int, dtype: str | None = None) -> Tensor:
        """Return numbers of the kernel's dtype (or another), as the pattern has them."""
        kind = self._dtype if dtype is None else getattr(self._torch, _TORCH[dtype])
        if self._pattern == "random" and kind.is_floating_point:
            numbers = self._torch.randn(size, generator=self._generator)
        elif self._pattern == "random":
            numbers = self._torch.randint(-127, 128, size, generator=self._generator)
        elif self._pattern == "integers":
            numbers = self._torch.randint(-3, 4, size, generator=self._generator)
        else:
            numbers = self._torch.full(size, float(self._pattern == "ones"))
        return numbers.to(kind).to(self._device)

    def positive(self, *size: int, dtype: str | None = None) -> Tensor:
        """Return numbers between 0 and 1, whatever the pattern."""
        kind = self._dtype if dtype is None else getattr(self._torch, _TORCH[dtype])
        numbers = self._torch.rand(size, generator=self._generator)
        return numbers.to(kind).to(self._device)

    def integers(self, low: int, high: int, *size: int) -> Tensor:
        """Return int32 numbers from `low` up to but without `high`, whatever the pattern."""
        numbers = self._torch.randint(low, high, size, generator=self._generator)
        return numbers.to(self._torch.int32).to(self._device)


def difference(output: Tensor, expected: Mapping[str, Any], rule: Tolerance) -> Difference:
    """Compare an output with what `reference` of its kernel returned for it.

    `expected` holds `value` in float64; `terms`, the roundings in the longest chain;
    `magnitude`, the size of what flows through the computation; and `rounded`, the size of
    what passes through the operand format, where that differs from `magnitude`; and `stored`,
    the size of all that takes the output's own type on the way, where that is not `value` alone.
    """
    torch = importlib.import_module("torch")
    found = output.detach().to("cpu", torch.float64)
    value = expected["value"]
    magnitude = expected["magnitude"].expand_as(value)
    if not found.numel():
        return Difference(0.0, 0.0)
    store = FORMATS[_STORES.get(str(output.dtype).removeprefix("torch."), "exact")]
    sums = growth(expected["terms"]) * FORMATS[rule.accumulate].roundoff
    operand = FORMATS[rule.operand].roundoff
    # In place where it can be: fresh memory costs more than the arithmetic on it.
    if "rounded" in expected:
        bound = (magnitude * sums).add_(expected["rounded"], alpha=operand)
    else:
        bound = magnitude * (sums + operand)
    bound.add_(expected.get("stored", value).abs(), alpha=store.roundoff).add_(store.least)
    error = (found - value).abs_()
    distance, norm = error.norm().item(), value.norm().item()
    if not math.isfinite(distance):
        return Difference(math.inf, math.inf)
    # Where nothing is wrong and nothing may be, 0 / 0 is no fault.
    worst = error.div_(bound).nan_to_num_(0.0, posinf=math.inf).max().item()
    return Difference(distance / norm if norm else distance, worst)
