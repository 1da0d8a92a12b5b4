"""One product again and again: each result must have the bits of the first, and the first be right.

The card is kept at work all the time, which is when weak power, heat and sick memory show.
The first result is trusted no more than the others: rows all over it are compared with
float64 (on the card, whose units for that are others).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from envcheck.core.rated import Burn, Mismatch
from envcheck.guest import comparing
from envcheck.guest.ops.op import Tensor
from envcheck.guest.ops.rules import MATRIX_UNITS
from envcheck.guest.ops.torches import torch

Product = Callable[[Tensor, Tensor, Tensor], object]
"""Multiplies the first two into the third."""

_TORCH = {"bf16": ("bfloat16", "int16"), "fp16": ("float16", "int16"), "fp32": ("float32", "int32")}
"""Name of each type, and of the integers as wide: NaNs compare equal by their bits alone."""
_BAND = 64
"""Rows of which one is compared: no more than the tile of a kernel has, so each tile is seen."""
_STRIDE = 37  # odd, so that the rows taken lie at all places within their bands
_SHOWN = 5


def multiply(a: Tensor, b: Tensor, out: Tensor) -> object:
    """Return the product as PyTorch computes it."""
    return torch().mm(a, b, out=out)


def burn(dtype: str, size: int, device: str, until: float, product: Product = multiply) -> Burn:
    """Multiply until that time, twice at least."""
    kind, integers = (getattr(torch(), name) for name in _TORCH[dtype])
    generator = torch().Generator(device).manual_seed(1)
    a, b = (
        torch().randn(size, size, generator=generator, device=device).to(kind) for _ in range(2)
    )
    # What nothing computes must not look like a result.
    first, *outs = (torch().full_like(a, float("nan")) for _ in range(3))
    product(a, b, first)
    compared = _compared(a, b, first, dtype)
    started = time.monotonic()
    count = mismatches = 0
    seen: Mismatch | None = None
    while count < len(outs) or time.monotonic() < until:
        out = outs[count % len(outs)].fill_(float("nan"))
        product(a, b, out)
        count += 1
        if not torch().equal(out.view(integers), first.view(integers)):
            mismatches += 1
            seen = seen or _mismatch(count, first, out, integers)
    return Burn(
        dtype=dtype,
        size=size,
        repetitions=count,
        seconds=round(time.monotonic() - started, 3),
        mismatches=mismatches,
        first=seen,
        **compared,
    )


def rows(size: int) -> list[int]:
    """Return one row of each band, each at another place within it."""
    band = min(_BAND, size)
    return [start + start // band * _STRIDE % band for start in range(0, size - band + 1, band)]


def _compared(a: Tensor, b: Tensor, result: Tensor, dtype: str) -> dict[str, Any]:
    """Compare one row of each band with float64."""
    size, taken = len(a), rows(len(a))
    whole = b.double()
    value = a[taken].double() @ whole
    magnitude = a[taken].double().abs() @ whole.abs_()
    # As many roundings as a product's chain has at most: its terms, the sum's end, the store.
    expected = {"value": value.cpu(), "magnitude": magnitude.cpu(), "terms": size + 2}
    found = comparing.compare(result[taken], expected, MATRIX_UNITS[dtype].tolerance, exactly=False)
    return {"rows": len(taken), "finite": found["finite"], "worst": found["worst"]}


def _mismatch(repetition: int, first: Tensor, out: Tensor, integers: Any) -> Mismatch:
    flipped = out.view(integers) ^ first.view(integers)
    places = flipped.nonzero()
    shown = [(int(row), int(column)) for row, column in places[:_SHOWN].tolist()]
    bits = (1 << 8 * first.element_size()) - 1
    return Mismatch(
        repetition=repetition,
        elements=len(places),
        positions=tuple(f"{row},{column}" for row, column in shown),
        expected=tuple(str(first[place].item()) for place in shown),
        found=tuple(str(out[place].item()) for place in shown),
        flipped=tuple(hex(int(flipped[place].item()) & bits) for place in shown),
    )
