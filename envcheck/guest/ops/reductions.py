"""Sums along each axis, running sums and extremes."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Expected, Op, Tensors, dims
from envcheck.guest.ops.rules import exactly, in_fp32, only
from envcheck.guest.ops.torches import moved

_CASES = (
    Case(sizes=dims(M=301, N=1027)),
    Case(sizes=dims(M=3, N=100_003)),
    Case(sizes=dims(M=70_001, N=3)),
    Case(sizes=dims(M=65, N=129), layout="transposed"),
    Case(sizes=dims(M=33, N=67), layout="strided"),
    Case(sizes=dims(M=1, N=1)),
    Case(sizes=dims(M=37, N=53), pattern="integers"),
    Case(sizes=dims(M=37, N=253), pattern="ones"),
    Case(sizes=dims(M=5, N=0)),
)
_SUMS = "Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 4.2 (sums)"


def _draw(case: Case, draw: Operands) -> Tensors:
    return {"x": draw.values(case.sizes["M"], case.sizes["N"])}


def _sum(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    x = operands["x"]
    return {"rows": x.sum(1), "columns": x.sum(0), "all": x.float().sum() if _half(x) else x.sum()}


def _half(x: object) -> bool:
    return str(getattr(x, "dtype", "")) in ("torch.float16", "torch.bfloat16")


def _sum_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    rows, columns = case.sizes["M"], case.sizes["N"]
    return {"rows": columns, "columns": rows, "all": rows * columns, "d_x": 4}


def _running(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"rows": operands["x"].cumsum(1), "columns": operands["x"].cumsum(0)}


def _running_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    rows, columns = case.sizes["M"], case.sizes["N"]
    return {"rows": columns, "columns": rows, "d_x": rows + columns}


def _extremes(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    x = operands["x"]
    largest, where = x.max(1)
    return {
        "max": largest,
        "argmax holds the max": x.gather(1, where[:, None])[:, 0],
        "min": x.amin(1),
        "columns": x.amax(0),
        "cummax": x.cummax(1).values,
    }


def _spread(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": operands["x"].var(1)}


def _spread_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return variances: the mean that is taken off carries an error of mean |x|."""
    x, columns = operands["x"], case.sizes["N"]
    size = x.abs() + x.abs().mean(1, keepdim=True)
    return {
        "out": {
            "value": x.var(1),
            "magnitude": size.square().sum(1) / (columns - 1),
            "terms": columns + 8,
        }
    }


OPS = (
    Op(
        name="sum",
        family="reductions",
        dtypes=in_fp32(_SUMS, through=True),
        cases=_CASES,
        inputs=_draw,
        call=_sum,
        reference=linear.reference(_sum, _sum_terms, ("x",)),
        gradients=("x",),
    ),
    Op(
        name="cumsum",
        family="reductions",
        dtypes=only(in_fp32(_SUMS), "fp32"),
        cases=_CASES,
        inputs=_draw,
        call=_running,
        reference=linear.reference(_running, _running_terms, ("x",)),
        gradients=("x",),
    ),
    Op(
        name="extremes",
        family="reductions",
        dtypes=exactly("fp32", "fp16", "bf16", "int32"),
        cases=tuple(c for c in _CASES if c.sizes["N"]),
        inputs=_draw,
        call=_extremes,
        reference=moved(_extremes),
        exact=("random", "integers", "ones"),
    ),
    Op(
        name="var",
        family="reductions",
        dtypes=in_fp32("Higham 1.9 (variance in two passes, or after Welford)"),
        cases=tuple(c for c in _CASES if c.sizes["N"] > 1),
        inputs=_draw,
        call=_spread,
        reference=_spread_whole,
        exact=("ones",),
    ),
)
