"""apex: fused norms and a fused optimizer."""

from __future__ import annotations

import importlib
from typing import Any

from envcheck.guest.ops.op import Case, Tensor, Tensors
from envcheck.guest.smokes import adam, rows
from envcheck.guest.smokes.smoke import Smoke

_NAME = "apex"


def _norms() -> Any:
    return importlib.import_module("apex.normalization.fused_layer_norm")


def _layer_norm(operands: Tensors, case: Case) -> Tensors:
    x, w, b = (operands[name] for name in "xwb")
    return {"out": _norms().fused_layer_norm_affine(x, w, b, (case.sizes["N"],), rows.EPSILON)}


def _rms_norm(operands: Tensors, case: Case) -> Tensors:
    x, w = operands["x"], operands["w"]
    return {"out": _norms().fused_rms_norm_affine(x, w, (case.sizes["N"],), rows.EPSILON)}


def _adam(parameters: list[Tensor]) -> Any:
    return importlib.import_module("apex.optimizers").FusedAdam(
        parameters, adam_w_mode=True, **adam.OPTIONS
    )


SMOKE = Smoke(
    module=_NAME,
    distributions=("apex",),
    ops=(
        rows.norm("layer_norm", "apex.fused_layer_norm_affine", _NAME, _layer_norm),
        rows.norm("rms_norm", "apex.fused_rms_norm_affine", _NAME, _rms_norm),
        adam.op("apex.FusedAdam", _NAME, adam.fused(_adam)),
    ),
    tried=False,
)
