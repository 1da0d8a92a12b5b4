"""FlashInfer: attention of one request and a norm, compiled when they are first asked for."""

from __future__ import annotations

import importlib
from typing import Any

from envcheck.guest.ops.op import Case, Tensors, dims
from envcheck.guest.ops.rules import in_fp32, only
from envcheck.guest.smokes import heads, rows
from envcheck.guest.smokes.smoke import Smoke

_NAME = "flashinfer"
_COMPILING = 300
"""Seconds: nvcc may have to build what no wheel holds."""


def _package() -> Any:
    return importlib.import_module(_NAME)


def _attend(operands: Tensors, case: Case) -> Tensors:
    """Take one request, whose tensors have no dimension for a batch: (length, heads, size)."""
    q, k, v = (t[0].contiguous() for t in heads.turned(operands))
    causal = bool(case.sizes["CAUSAL"])
    out = _package().single_prefill_with_kv_cache(q, k, v, causal=causal, kv_layout="NHD")
    return {"out": out.transpose(0, 1)[None]}


def _norm(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": _package().rmsnorm(operands["x"], operands["w"], eps=rows.EPSILON)}


SMOKE = Smoke(
    module=_NAME,
    distributions=("flashinfer-python",),
    ops=(
        rows.norm(
            "rms_norm",
            "flashinfer.rmsnorm",
            _NAME,
            _norm,
            dtypes=only(in_fp32(rows.SOURCE), "bf16", "fp16"),
            gradients=(),
            deadline=_COMPILING,
        ),
        heads.op(
            "flashinfer.single_prefill_with_kv_cache",
            _NAME,
            _attend,
            dtypes=heads.rules("bf16"),
            sizes=(
                dims(Z=1, H=6, KEY_HEADS=2, T=131, HEAD=64, CAUSAL=1),
                dims(Z=1, H=2, T=259, HEAD=64, CAUSAL=0),
            ),
            backward=False,
            deadline=_COMPILING,
        ),
    ),
    tried=True,
)
