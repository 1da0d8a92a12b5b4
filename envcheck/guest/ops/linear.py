"""References of operations that are linear in each operand: products, sums, convolutions.

Their error is bounded by the same formula with every operand's absolute value, forward and
backward alike, so one function gives both the value and the magnitude.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from envcheck.guest.ops.op import Case, Expected, Tensor, Tensors

Compute = Callable[[Tensors, Case], Tensors]
Terms = Callable[[Tensors, Case], Mapping[str, int]]
Kept = Callable[[Tensors, Case], Mapping[str, Tensor]]


def reference(
    compute: Compute, terms: Terms, gradients: tuple[str, ...] = (), kept: Kept | None = None
) -> Callable[[Tensors, Case], dict[str, Expected]]:
    """Return a reference that runs `compute` in float64, and once more on absolute values.

    `terms` gives the roundings in the longest chain for each output, by its name; `kept` the
    size of what else takes the type of an output on the way to it.
    """

    def compare(operands: Tensors, case: Case) -> dict[str, Expected]:
        values = both_ways(compute, operands, case, gradients)
        absolute = {n: t.abs() if t.is_floating_point() else t for n, t in operands.items()}
        sizes = both_ways(compute, absolute, case, gradients)
        chains = terms(operands, case)
        more = kept(operands, case) if kept else {}
        return {
            name: {
                "value": value,
                "magnitude": sizes[name],
                "terms": chains[name],
                **({"stored": value.abs() + more[name]} if name in more else {}),
            }
            for name, value in values.items()
        }

    return compare


def both_ways(
    compute: Compute, operands: Tensors, case: Case, gradients: tuple[str, ...]
) -> dict[str, Tensor]:
    """Return the outputs and the gradients in float64."""
    torch: Any = importlib.import_module("torch")
    leaves = {n: t.clone().requires_grad_() if n in gradients else t for n, t in operands.items()}
    outputs = compute(leaves, case)
    found = {name: out.detach() for name, out in outputs.items()}
    with_gradient = [n for n in outputs if f"grad_{n}" in operands]
    if gradients and with_gradient:
        given = torch.autograd.grad(
            [outputs[n] for n in with_gradient],
            [leaves[n] for n in gradients],
            [operands[f"grad_{n}"] for n in with_gradient],
        )
        found |= {f"d_{name}": part for name, part in zip(gradients, given, strict=True)}
    return found
