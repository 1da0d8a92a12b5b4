"""Layers whose weights are stored in few bits: what they multiply by, and how far off that is.

The product is compared with float64 over the package's own dequantized weights, so its bound is
that of a product; what quantizing makes of the weights has a bound of its own, from the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors

WIDTH = 127
"""The largest int8 of a symmetric range."""
SCALED = 8
"""Roundings of a weight that is divided by its scale and multiplied again: four operations,
each right to 2 units with fast division (CUDA C++ Programming Guide, mathematical functions)."""


class Layer(NamedTuple):
    """A layer with quantized weights."""

    apply: Callable[[Tensor], Tensor]
    weights: Tensor
    """What the package says that it multiplies by."""


Build = Callable[[Tensor, Case], Layer]
"""Quantizes weights of shape (outputs, inputs)."""


def product(
    name: str,
    family: str,
    build: Build,
    *,
    dtypes: Mapping[str, Dtype],
    cases: tuple[Case, ...],
    roundings: int = 1,
    rounded: int = 0,
    gradients: tuple[str, ...] = (),
    deadline: int = 60,
) -> Op:
    """Return the product of activations with quantized weights.

    The result is rounded to the operands' type so many times in a row (`roundings`), and each
    product before it is summed up (`rounded`), as the package documents.
    """

    def draw(case: Case, operands: Operands) -> Tensors:
        x = operands.values(case.sizes["M"], case.sizes["K"])
        w = operands.values(case.sizes["N"], case.sizes["K"])
        return {"x": x, "_w": w, "_weights": build(w, case).weights}

    def call(operands: Tensors, case: Case) -> Tensors:
        return {"out": build(operands["_w"], case).apply(operands["x"])}

    def whole(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
        return {"out": operands["x"] @ operands["_weights"].mT}

    def terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
        # A code is scaled before it is multiplied, or the sum is: two roundings at most.
        return {"out": case.sizes["K"] + 4, "d_x": case.sizes["N"] + 4}

    plain = linear.reference(whole, terms, gradients)

    def reference(operands: Tensors, case: Case) -> Mapping[str, Expected]:
        return {
            output: {
                **expected,
                "rounded": rounded * expected["magnitude"],
                "stored": roundings * expected["value"].abs(),
            }
            for output, expected in plain(operands, case).items()
        }

    return Op(
        name=name,
        family=family,
        dtypes=dtypes,
        cases=cases,
        inputs=draw,
        call=call,
        reference=reference,
        gradients=gradients,
        exact=("zeros",),
        watched=True,
        deadline=deadline,
    )


def quantized(
    name: str,
    family: str,
    build: Build,
    *,
    dtypes: Mapping[str, Dtype],
    cases: tuple[Case, ...],
    bound: Callable[[Tensor, Case], Mapping[str, Any]],
) -> Op:
    """Return what quantizing makes of weights; `bound` knows the steps of the format."""

    def draw(case: Case, operands: Operands) -> Tensors:
        return {"w": operands.values(case.sizes["N"], case.sizes["K"])}

    def call(operands: Tensors, case: Case) -> Tensors:
        return {"weights": build(operands["w"], case).weights}

    def reference(operands: Tensors, case: Case) -> Mapping[str, Expected]:
        w = operands["w"]
        return {"weights": {"value": w, **bound(w, case)}}

    return Op(
        name=name,
        family=family,
        dtypes=dtypes,
        cases=cases,
        inputs=draw,
        call=call,
        reference=reference,
        exact=("zeros",),
        watched=True,
    )


def steps(operand: str, source: str, *names: str, accumulate: str = "fp32") -> dict[str, Dtype]:
    """Return the rule of numbers that are rounded once to a format of few bits."""
    rule = Tolerance(accumulate=accumulate, operand=operand, source=source)
    return {name: Dtype(min_sm="sm_80", tolerance=rule) for name in names}


def largest(w: Tensor, block: int) -> Tensor:
    """Return, for each weight, the largest size in its block of so many in a row."""
    blocks = w.unflatten(-1, (-1, block))
    return blocks.abs().amax(-1, keepdim=True).expand_as(blocks).flatten(-2)


def by_row(w: Tensor, case: Case) -> Mapping[str, Any]:  # noqa: ARG001 - as every bound
    """Return the bound of symmetric formats with one scale for each row of weights."""
    return {"magnitude": w.abs(), "rounded": largest(w, w.shape[-1]), "terms": SCALED}
