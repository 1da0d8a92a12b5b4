"""vLLM: two of the kernels in its `_C`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensors, dims
from envcheck.guest.ops.rules import in_fp32
from envcheck.guest.ops.torches import torch
from envcheck.guest.smokes import rows
from envcheck.guest.smokes.smoke import Smoke

_NAME = "vllm"


def _compiled() -> Any:
    importlib.import_module("vllm._C")
    return torch().ops._C  # noqa: SLF001 - the name under which vLLM registers its operations


def _norm(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    x = operands["x"].contiguous()
    out = torch().full_like(x, float("nan"))
    _compiled().rms_norm(out, x, operands["w"], rows.EPSILON)
    return {"out": out}


def _draw(case: Case, draw: Operands) -> Tensors:
    return {"x": draw.values(case.sizes["M"], 2 * case.sizes["N"])}


def _gate(operands: Tensors, case: Case) -> Tensors:
    x = operands["x"].contiguous()
    out = x.new_full((len(x), case.sizes["N"]), float("nan"))
    _compiled().silu_and_mul(out, x)
    return {"out": out}


def _gated(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return x sigmoid(x) y; exp(-x) is wrong by as many units as |x|, and two more."""
    x, y = operands["x"].split(case.sizes["N"], 1)
    value = x * x.sigmoid() * y
    # The gate takes the operands' type before it is multiplied.
    size = value.abs() * (1 + x.abs())
    return {"out": {"value": value, "magnitude": size, "rounded": value.abs(), "terms": 8}}


_EXP = "CUDA C++ Programming Guide, mathematical functions: expf and __expf; Higham 3.1"

SMOKE = Smoke(
    module=_NAME,
    distributions=("vllm",),
    ops=(
        # A row is rounded once before its weight and once after it.
        rows.norm(
            "rms_norm",
            "vllm.rms_norm",
            _NAME,
            _norm,
            dtypes=in_fp32(rows.SOURCE, through=True),
            gradients=(),
        ),
        Op(
            name="vllm.silu_and_mul",
            family=_NAME,
            dtypes=in_fp32(_EXP, through=True),
            cases=(Case(sizes=dims(M=37, N=1024)), Case(sizes=dims(M=3, N=128), pattern="zeros")),
            inputs=_draw,
            call=_gate,
            reference=_gated,
            exact=("zeros",),
            watched=True,
        ),
    ),
    tried=False,
)
