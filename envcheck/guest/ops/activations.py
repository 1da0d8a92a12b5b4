"""Softmax, cross entropy and GELU: exponentials, and what is kept between two of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops.normal import ROWS, draw_rows
from envcheck.guest.ops.op import Case, Expected, Op, Tensors, dims
from envcheck.guest.ops.rules import in_fp32
from envcheck.guest.ops.torches import functional, torch

LEAST_NORMAL = 2.0**-14
"""Of fp16: a smaller probability loses digits when it is rounded."""


def _softmax(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": operands["x"].softmax(1)}


def _chances(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return probabilities; their gradient takes the stored ones, and stores what it makes of them."""
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
    passed = passed + p * (dy.abs() * stored).sum(1, keepdim=True)
    terms = case.sizes["N"] + 16
    return {
        "out": {"value": p, "magnitude": blur, "rounded": p, "terms": terms},
        "d_x": {
            "value": p * (dy - total),
            "magnitude": flow,
            "rounded": 2 * passed,  # once for a probability, once for its product with dy
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


OPS = (
    Op(
        name="softmax",
        family="norms",
        cases=ROWS,
        inputs=draw_rows,
        exact=(),
        dtypes=in_fp32(_SOFTMAX, through=True),
        call=_softmax,
        reference=_chances,
        gradients=("x",),
    ),
    Op(
        name="cross_entropy",
        family="norms",
        cases=ROWS,
        exact=(),
        dtypes=in_fp32(_SOFTMAX, through=True),
        inputs=_draw_labelled,
        call=_cross_entropy,
        reference=_losses,
        gradients=("x",),
    ),
    Op(
        name="gelu",
        family="norms",
        dtypes=in_fp32(_ERF),
        cases=_FLAT,
        inputs=_draw_flat,
        call=_gelu,
        reference=_gelu_whole,
        gradients=("x",),
        exact=("zeros",),
    ),
)
