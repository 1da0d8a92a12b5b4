"""xformers: memory-efficient attention, by each operator that it lists for these operands."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from envcheck.guest.ops import attention
from envcheck.guest.ops.op import Case, Expected, Tensors
from envcheck.guest.smokes import heads
from envcheck.guest.smokes.smoke import Smoke

_NAME = "xformers"


def _fmha() -> Any:
    importlib.import_module("xformers.ops")
    return importlib.import_module("xformers.ops.fmha")


def _mask(case: Case) -> Any:
    return _fmha().attn_bias.LowerTriangularMask() if case.sizes["CAUSAL"] else None


def _by_each(operands: Tensors, case: Case) -> Tensors:
    """Compute with each forward operator that supports the operands, on this card."""
    fmha, (q, k, v) = _fmha(), (t.contiguous() for t in heads.turned(operands))
    given = fmha.Inputs(query=q, key=k, value=v, attn_bias=_mask(case))
    able = [op for op in fmha.ALL_FW_OPS if not op.not_supported_reasons(given)]
    if not able:
        message = "no operator of xformers supports these operands"
        raise NotImplementedError(message)
    return {
        op.NAME: fmha.memory_efficient_attention_forward(
            q, k, v, attn_bias=_mask(case), op=op
        ).transpose(1, 2)
        for op in able
    }


class _Same(dict[str, Expected]):
    """The same for every output: their names are those of the operators that there are."""

    def __missing__(self, key: str) -> Expected:
        return self["out"]


def _every(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    return _Same(attention.reference(operands, case))


def _chosen(operands: Tensors, case: Case) -> Tensors:
    """Compute with what xformers chooses, which has a backward pass, too."""
    q, k, v = (t.contiguous() for t in heads.turned(operands))
    out = importlib.import_module("xformers.ops").memory_efficient_attention(
        q, k, v, attn_bias=_mask(case)
    )
    return {"out": out.transpose(1, 2)}


def _with(module: str) -> Callable[[Tensors, Case], Tensors]:
    """Return a call with a pair of operators, forward and backward."""

    def call(operands: Tensors, case: Case) -> Tensors:
        operators = importlib.import_module(f"xformers.ops.fmha.{module}")
        q, k, v = (t.contiguous() for t in heads.turned(operands))
        pair = (operators.FwOp, operators.BwOp)
        out = _fmha().memory_efficient_attention(q, k, v, attn_bias=_mask(case), op=pair)
        return {"out": out.transpose(1, 2)}

    return call


# Triton's operator tries out its configurations for each new size, so there are few.
_EACH = replace(
    heads.op(
        "xformers.each", _NAME, _by_each, dtypes=heads.rules("bf16"), backward=False, deadline=120
    ),
    reference=_every,
    cases=tuple(Case(sizes=s) for s in heads.SIZES[:2]),
)

SMOKE = Smoke(
    module=_NAME,
    distributions=("xformers",),
    ops=(
        heads.op(
            "xformers.memory_efficient_attention",
            _NAME,
            _chosen,
            dtypes=heads.rules("bf16", "fp16"),
        ),
        heads.op(
            "xformers.cutlass",
            _NAME,
            _with("cutlass"),
            dtypes=heads.rules("bf16", "fp32"),
            sizes=heads.SIZES[:2],
        ),
        _EACH,
    ),
    tried=True,
)
