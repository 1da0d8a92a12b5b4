"""causal-conv1d: a short convolution over the past of each channel."""

from __future__ import annotations

import importlib

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import SUMS, in_fp32
from envcheck.guest.ops.torches import functional
from envcheck.guest.smokes.smoke import Smoke

_NAME = "causal_conv1d"


def _draw(case: Case, draw: Operands) -> Tensors:
    batch, channels, length, width = (case.sizes[n] for n in ("B", "C", "T", "K"))
    return {
        "x": draw.values(batch, channels, length),
        "w": draw.values(channels, width),
        "b": draw.values(channels),
    }


def _convolve(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    convolve = importlib.import_module(_NAME).causal_conv1d_fn
    return {"out": convolve(operands["x"], operands["w"], operands["b"], activation=None)}


def _plain(operands: Tensors, case: Case) -> Tensors:
    x, w = operands["x"], operands["w"]
    padded = functional().pad(x, (case.sizes["K"] - 1, 0))
    out = functional().conv1d(padded, w[:, None], operands["b"], groups=case.sizes["C"])
    return {"out": out}


def _terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    width, places = case.sizes["K"] + 2, case.sizes["B"] * case.sizes["T"]
    return {"out": width, "d_x": width, "d_w": places + 2, "d_b": places + 2}


CONVOLUTION = Op(
    name="causal_conv1d.causal_conv1d_fn",
    family=_NAME,
    dtypes=in_fp32(SUMS),
    cases=(
        Case(sizes=dims(B=2, C=48, T=264, K=4)),
        Case(sizes=dims(B=1, C=8, T=131, K=3)),
        Case(sizes=dims(B=1, C=8, T=64, K=4), pattern="integers"),
    ),
    inputs=_draw,
    call=_convolve,
    reference=linear.reference(_plain, _terms, ("x", "w", "b")),
    gradients=("x", "w", "b"),
    exact=("zeros",),
    atomics=("backward",),
    watched=True,
)

SMOKE = Smoke(module=_NAME, distributions=("causal-conv1d",), ops=(CONVOLUTION,), tried=False)
