"""Transformer Engine: a norm and a linear layer, without fp8."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, in_fp32, only
from envcheck.guest.smokes import rows
from envcheck.guest.smokes.smoke import Smoke

_NAME = "transformer_engine"


def _package() -> Any:
    return importlib.import_module("transformer_engine.pytorch")


def _norm(operands: Tensors, case: Case) -> Tensors:
    x = operands["x"]
    layer = _package().RMSNorm(case.sizes["N"], eps=rows.EPSILON, device=x.device, dtype=x.dtype)
    layer.weight.data.copy_(operands["w"])
    return {"out": layer(x)}


def _draw(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"x": draw.values(m, k), "_w": draw.values(n, k)}


def _linear(operands: Tensors, case: Case) -> Tensors:
    x, w = operands["x"], operands["_w"]
    layer = _package().Linear(
        case.sizes["K"], case.sizes["N"], bias=False, params_dtype=x.dtype, device=x.device
    )
    layer.weight.data.copy_(w)
    return {"out": layer(x)}


def _whole(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": operands["x"] @ operands["_w"].mT}


def _terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
    return {"out": case.sizes["K"] + 2, "d_x": case.sizes["N"] + 2}


LINEAR = Op(
    name="transformer_engine.Linear",
    family=_NAME,
    dtypes=only(MATRIX_UNITS, "bf16", "fp16"),
    cases=(
        Case(sizes=dims(M=64, N=96, K=256)),
        Case(sizes=dims(M=32, N=64, K=128), pattern="integers"),
    ),
    inputs=_draw,
    call=_linear,
    reference=linear.reference(_whole, _terms, ("x",)),
    gradients=("x",),
    exact=("zeros",),
    watched=True,
)

SMOKE = Smoke(
    module=_NAME,
    distributions=("transformer-engine", "transformer-engine-torch"),
    ops=(
        LINEAR,
        rows.norm(
            "rms_norm",
            "transformer_engine.RMSNorm",
            _NAME,
            _norm,
            dtypes=only(in_fp32(rows.SOURCE), "bf16", "fp16"),
            gradients=("x",),
        ),
    ),
    tried=False,
)
