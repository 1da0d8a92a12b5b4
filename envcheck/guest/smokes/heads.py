"""Attention as packages take it: (batch, length, heads, head size), forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.operands import Operands
from envcheck.guest.ops import attention
from envcheck.guest.ops.op import Case, Op, Tensor, Tensors, dims

SOURCE = (
    "Higham 3.5 for each product, probabilities and their gradients rounded once in between;"
    " Blanchard, Higham and Higham 2021 for the softmax"
)
SIZES = (
    dims(Z=2, H=3, T=131, HEAD=64, CAUSAL=0),
    dims(Z=2, H=3, T=131, HEAD=64, CAUSAL=1),
    dims(Z=1, H=2, T=259, HEAD=128, CAUSAL=1),
)
GROUPED = dims(Z=1, H=6, KEY_HEADS=2, T=131, HEAD=64, CAUSAL=1)


def rules(*names: str, min_sm: str = "sm_80") -> dict[str, Dtype]:
    """Return the rules of attention that rounds its probabilities to the operands' type."""
    return {
        name: Dtype(
            min_sm=min_sm,
            tolerance=Tolerance(accumulate="fp32-truncated", operand=name, source=SOURCE),
        )
        for name in names
    }


def cases(*sizes: dict[str, int]) -> tuple[Case, ...]:
    """Return these sizes, and the first with constant operands and another layout."""
    return (
        *(Case(sizes=s) for s in sizes),
        Case(sizes=sizes[0], layout="heads-last"),
        Case(sizes=sizes[0], pattern="ones"),
        Case(sizes=sizes[0], pattern="zeros"),
    )


def draw(case: Case, operands: Operands) -> Tensors:
    """Draw queries, keys and values as `attention.reference` takes them: heads come first."""
    s = case.sizes
    keys = (s["Z"], s.get("KEY_HEADS", s["H"]), s["T"], s["HEAD"])
    return {
        "q": operands.values(s["Z"], s["H"], s["T"], s["HEAD"]),
        "k": operands.values(*keys),
        "v": operands.values(*keys),
    }


def turned(operands: Tensors) -> list[Tensor]:
    """Return the operands with heads after positions."""
    return [operands[name].transpose(1, 2) for name in "qkv"]


def calling(attend: Callable[..., Any]) -> Callable[[Tensors, Case], Tensors]:
    """Return a call of `attend(q, k, v, causal=...)`, which takes heads after positions."""

    def call(operands: Tensors, case: Case) -> Tensors:
        out = attend(*turned(operands), causal=bool(case.sizes["CAUSAL"]))
        return {"out": out.transpose(1, 2)}

    return call


def op(
    name: str,
    family: str,
    call: Callable[[Tensors, Case], Tensors],
    *,
    dtypes: Mapping[str, Dtype],
    sizes: tuple[dict[str, int], ...] = SIZES,
    backward: bool = True,
    deadline: int = 60,
) -> Op:
    """Return one way to compute attention."""
    return Op(
        name=name,
        family=family,
        dtypes=dtypes,
        cases=cases(*sizes),
        inputs=draw,
        call=call,
        reference=attention.reference,
        gradients=("q", "k", "v") if backward else (),
        exact=("zeros",),
        atomics=("backward",),  # parts of a query's gradient are added in any order
        watched=True,
        deadline=deadline,
    )
