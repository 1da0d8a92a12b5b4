"""Norms, softmax, cross entropy and GELU: rows that are summed up, some of which cancel."""

from __future__ import annotations

import math
from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import in_fp32
from envcheck.guest.ops.torches import functional, torch

EPSILON = 1e-5
LEAST_NORMAL = 2.0**-14
"""Of fp16: a smaller probability loses digits when it is rounded."""
_ROWS = (
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


def _draw(case: Case, draw: Operands) -> Tensors:
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


def _softmax(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": operands["x"].softmax(1)}


def _chances(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return probabilities; their gradient starts from the stored ones."""
    x = operands["x"]
    p = x.softmax(1)
    depth = (x - x.amax(1, keepdim=True)).abs() if x.numel() else x
    blur = p * (1 + depth + (p * depth).sum(1, keepdim=True))
    dy = operands.get("grad_out", torch().zeros_like(x))
    total = (dy * p).sum(1, keepdim=True)
    flow = blur * (dy.abs() + (dy * p).abs().sum(1, keepdim=True))
    flow = flow + p * (dy.abs() * blur).sum(1, keepdim=True)
    stored = p + LEAST_NORMAL
    passed = stored * (dy.abs() + (dy * p).abs().sum(1, keepdim=True))
    terms = case.sizes["N"] + 16
    return {
        "out": {"value": p, "magnitude": blur, "rounded": p, "terms": terms},
        "d_x": {
            "value": p * (dy - total),
            "magnitude": flow,
            "rounded": passed + p * (dy.abs() * stored).sum(1, keepdim=True),
            "terms": terms,
        },
    }


def _draw_labelled(case: Case, draw: Operands) -> Tensors:
    rows, columns = case.sizes["M"], case.sizes["N"]
    labels = draw.integers(0, columns, rows).long()
    return {"x": draw.values(rows, columns), "_labels": labels}


def _cross_entropy(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    loss = functional().cross_entropy(operands["x"], operands["_labels"], reduction="none")
    return {"out": loss}


def _losses(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return losses; log-probabilities are stored, and their exponentials may be."""
    x, labels = operands["x"], operands["_labels"][:, None]
    dy = operands.get("grad_out", torch().zeros(len(x), dtype=x.dtype))
    top = x.amax(1, keepdim=True) if x.numel() else x[:, :1]
    sums, p = x.logsumexp(1, keepdim=True), x.softmax(1)
    chosen = x.gather(1, labels)
    wanted = torch().zeros_like(x).scatter_(1, labels, 1.0)
    flow = top.abs() + (sums - top) + 1 + (p * (top - x)).sum(1, keepdim=True)
    depth = (x - sums).abs()
    terms = case.sizes["N"] + 16
    size = dy.abs()[:, None]
    return {
        "out": {
            "value": (sums - chosen)[:, 0],
            "magnitude": (flow + chosen.abs())[:, 0],
            "rounded": (sums - chosen)[:, 0].abs(),
            "terms": terms,
        },
        "d_x": {
            "value": (p - wanted) * dy[:, None],
            "magnitude": size * (p * (1 + depth + flow) + wanted),
            "rounded": size * (p * (1 + depth) + wanted),
            "terms": terms,
        },
    }


def _draw_flat(case: Case, draw: Operands) -> Tensors:
    return {"x": draw.values(case.sizes["N"])}


def _gelu(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": functional().gelu(operands["x"])}


def _gelu_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    """Return x times the share of the normal distribution below it, and the slope of that."""
    x = operands["x"]
    dy = operands.get("grad_out", torch().zeros_like(x))
    below = 0.5 * (1 + torch().erf(x / math.sqrt(2)))
    density = torch().exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    return {
        "out": {"value": x * below, "magnitude": x.abs(), "terms": 8},
        "d_x": {
            "value": dy * (below + x * density),
            "magnitude": dy.abs() * (1 + x.abs() * density * (1 + x.square())),
            "terms": 16,
        },
    }


_SOFTMAX = (
    "Blanchard, Higham and Higham, Accurately computing the log-sum-exp and softmax functions,"
    " IMA J. Numer. Anal. 41, 2021, section 4"
)
_ERF = "CUDA C++ Programming Guide, mathematical functions: erff is right to 2 units, expf too"
_FLAT = (
    Case(sizes=dims(N=5003)),
    Case(sizes=dims(N=1025), layout="offset"),
    Case(sizes=dims(N=1023), layout="strided"),
    Case(sizes=dims(N=1)),
    Case(sizes=dims(N=0)),
    Case(sizes=dims(N=131), pattern="zeros"),
)


def _op(name: str, **parts: object) -> Op:
    settled = {"family": "norms", "cases": _ROWS, "inputs": _draw, "exact": ()}
    return Op(name=name, **{**settled, **parts})  # type: ignore[arg-type]


OPS = (
    _op(
        "layer_norm",
        dtypes=in_fp32(_NORM),
        call=_layer_norm,
        reference=_normalised,
        gradients=("x", "w", "b"),
    ),
    _op(
        "rms_norm",
        dtypes=in_fp32(_NORM),
        call=_rms_norm,
        reference=_scaled,
        gradients=("x", "w"),
    ),
    _op(
        "softmax",
        dtypes=in_fp32(_SOFTMAX, through=True),
        call=_softmax,
        reference=_chances,
        gradients=("x",),
    ),
    _op(
        "cross_entropy",
        dtypes=in_fp32(_SOFTMAX, through=True),
        inputs=_draw_labelled,
        call=_cross_entropy,
        reference=_losses,
        gradients=("x",),
    ),
    _op(
        "gelu",
        dtypes=in_fp32(_ERF),
        cases=_FLAT,
        inputs=_draw_flat,
        call=_gelu,
        reference=_gelu_whole,
        gradients=("x",),
        exact=("zeros",),
    ),
)
