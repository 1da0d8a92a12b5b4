"""Steps of Adam as packages fuse them, compared with the algorithm in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims

STEPS = 3
RATE, DECAY, FIRST, SECOND, EPSILON = 2.0**-6, 2.0**-4, 0.875, 0.984375, 2.0**-20
"""Numbers that fp32 holds exactly, so that none differs from its reference."""
OPTIONS: Mapping[str, Any] = {
    "lr": RATE,
    "betas": (FIRST, SECOND),
    "eps": EPSILON,
    "weight_decay": DECAY,
}
"""The same by the names that optimizers give them."""
TERMS = 24
"""Roundings of one step: at most 16 operations, some of which are right to 2 units only."""
RULE = {
    "fp32": Dtype(
        min_sm="sm_50",
        tolerance=Tolerance(
            accumulate="fp32",
            source="Higham 3.1: at most 16 roundings for each step; CUDA C++ Programming Guide,"
            " mathematical functions: fast division is right to 2 units",
        ),
    )
}


def draw(case: Case, operands: Operands) -> Tensors:
    """Draw a parameter and its gradients."""
    size = case.sizes["N"]
    return {"p": operands.values(size), "gradients": operands.values(STEPS, size)}


def step(
    p: Tensor, first: Tensor, second: Tensor, gradient: Tensor, count: int, decay: float = DECAY
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what a step makes of these (Loshchilov and Hutter 2019), and the size of what moved."""
    flow = FIRST * first.abs() + (1 - FIRST) * gradient.abs()
    first = FIRST * first + (1 - FIRST) * gradient
    second = SECOND * second + (1 - SECOND) * gradient.square()
    root = (second / (1 - SECOND**count)).sqrt() + EPSILON
    rate = RATE / (1 - FIRST**count)
    p = p * (1 - RATE * decay) - rate * first / root
    return p, first, second, rate * flow / root


def whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - as every op's
    """Return the parameter after all steps."""
    p = operands["p"]
    size, first, second = p.abs(), 0 * p, 0 * p
    flow = first
    for count, gradient in enumerate(operands["gradients"], 1):
        flow = FIRST * flow + (1 - FIRST) * gradient.abs()
        p, first, second, _ = step(p, first, second, gradient, count)
        root = (second / (1 - SECOND**count)).sqrt() + EPSILON
        size = size + RATE / (1 - FIRST**count) * flow / root
    return {"p": {"value": p, "magnitude": size, "terms": TERMS * STEPS}}


def fused(make: Callable[[list[Tensor]], object]) -> Callable[[Tensors, Case], Tensors]:
    """Return a call that makes all steps with the optimizer that `make` returns."""

    def call(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
        parameter = operands["p"].clone().requires_grad_()
        optimizer = make([parameter])
        for gradient in operands["gradients"]:
            parameter.grad = gradient.clone()
            optimizer.step()  # type: ignore[attr-defined]
        return {"p": parameter.detach()}

    return call


def op(name: str, family: str, call: Callable[[Tensors, Case], Tensors], deadline: int = 60) -> Op:
    """Return the steps of one fused optimizer."""
    return Op(
        name=name,
        family=family,
        dtypes=RULE,
        cases=(
            Case(sizes=dims(N=10_007)),
            Case(sizes=dims(N=1)),
            Case(sizes=dims(N=513), pattern="zeros"),
        ),
        inputs=draw,
        call=call,
        reference=whole,
        exact=("zeros",),
        watched=True,
        deadline=deadline,
    )
