"""Norms of rows, some of which cancel."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import in_fp32
from envcheck.guest.ops.torches import functional, torch

EPSILON = 1e-5
ROWS = (
    Case(sizes=dims(M=37, N=781)),
    Case(sizes=dims(M=3, N=5003)),
    Case(sizes=dims(M=35, N=130), layout="transposed"),
    Case(sizes=dims(M=17, N=257), layout="offset"),
    Case(sizes=dims(M=2050, N=33)),
    Case(sizes=dims(M=1, N=1)),
    Case(sizes=dims(M=9, N=131), pattern="ones"),
    Case(sizes=dims(M=9, N=131), pattern="zeros"),
    Case(sizes=dims(M=0, N=7)),
)
_NORM = "Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 1.9 and 4.2"


def draw_rows(case: Case, draw: Operands) -> Tensors:
    """Draw rows, and a weight and a bias for each of their elements."""
    rows, columns = case.sizes["M"], case.sizes["N"]
    return {
        "x": draw.values(rows, columns),
        "w": draw.values(columns),
        "b": draw.values(columns),
    }


def _layer_norm(operands: Tensors, case: Case) -> Tensors:
    x, w, b = (operands[n] for n in "xwb")
    return {"out": functional().layer_norm(x, (case.sizes["N"],), w, b, EPSILON)}


def _normalised(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return rows without their mean and with variance 1.

    The mean carries a relative error of |x|, so x - mean carries one of |x| + mean |x|, which
    is what counts in a row that hardly varies; `flow` is that for the normalised row, the
    error of the variance included.
    """
    x, w, b = (operands[n] for n in "xwb")
    dy = operands.get("grad_out", torch().zeros_like(x))
    mean = x.mean(1, keepdim=True)
    rstd = 1 / torch().sqrt(x.var(1, keepdim=True, correction=0) + EPSILON)
    normal = (x - mean) * rstd
    size = x.abs() + x.abs().mean(1, keepdim=True)
    spread = 1 + rstd * size.square().mean(1, keepdim=True).sqrt()
    flow = rstd * size + normal.abs() * spread
    pull = dy * w
    plain, weighted = pull.mean(1, keepdim=True), (pull * normal).mean(1, keepdim=True)
    flow_weighted = (pull.abs() * flow).mean(1, keepdim=True)
    in_row = pull.abs() + pull.abs().mean(1, keepdim=True)
    in_row = in_row + flow * (pull * normal).abs().mean(1, keepdim=True)
    return _norm_outputs(
        case,
        out=(normal * w + b, flow * w.abs() + b.abs()),
        d_x=(
            (pull - plain - normal * weighted) * rstd,
            rstd * spread * (in_row + normal.abs() * flow_weighted),
        ),
        d_w=((dy * normal).sum(0), (dy.abs() * flow).sum(0)),
        d_b=(dy.sum(0), dy.abs().sum(0)),
    )


def _norm_outputs(case: Case, **parts: tuple[Tensor, Tensor]) -> Mapping[str, Expected]:
    rows, columns = case.sizes["M"], case.sizes["N"]
    over_rows = ("d_w", "d_b")
    return {
        name: {
            "value": value,
            "magnitude": magnitude,
            "terms": (max(rows, columns) if name in over_rows else columns) + 16,
        }
        for name, (value, magnitude) in parts.items()
    }


def _rms_norm(operands: Tensors, case: Case) -> Tensors:
    x, w = operands["x"], operands["w"]
    return {"out": functional().rms_norm(x, (case.sizes["N"],), w, EPSILON)}


def _scaled(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return rows of mean square 1: a sum of squares does not cancel."""
    x, w = operands["x"], operands["w"]
    dy = operands.get("grad_out", torch().zeros_like(x))
    rstd = 1 / torch().sqrt(x.square().mean(1, keepdim=True) + EPSILON)
    normal, pull = x * rstd, dy * w
    weighted = (pull * normal).mean(1, keepdim=True)
    in_row = (pull * normal).abs().mean(1, keepdim=True)
    return _norm_outputs(
        case,
        out=(normal * w, (normal * w).abs()),
        d_x=(rstd * (pull - normal * weighted), rstd * (pull.abs() + normal.abs() * in_row)),
        d_w=((dy * normal).sum(0), (dy * normal).abs().sum(0)),
    )


OPS = (
    Op(
        name="layer_norm",
        family="norms",
        cases=ROWS,
        inputs=draw_rows,
        exact=(),
        dtypes=in_fp32(_NORM),
        call=_layer_norm,
        reference=_normalised,
        gradients=("x", "w", "b"),
    ),
    Op(
        name="rms_norm",
        family="norms",
        cases=ROWS,
        inputs=draw_rows,
        exact=(),
        dtypes=in_fp32(_NORM),
        call=_rms_norm,
        reference=_scaled,
        gradients=("x", "w"),
    ),
)
