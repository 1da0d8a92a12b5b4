"""SageAttention: attention whose scores are products of int8 codes."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.ops.attention import LEAST_NORMAL
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.torches import torch
from envcheck.guest.smokes import heads
from envcheck.guest.smokes.smoke import Smoke

_STEP = 0.5 / 127
"""Half a step of a code, in units of the largest number that shares its scale."""
_SIGMAS = 8.0
"""Sums of independent errors leave this many of their deviations with chance 2 exp(-32)."""


def _attend(operands: Tensors, case: Case) -> Tensors:
    # The keys' mean is taken off where they lie, so they are not the operands themselves.
    q, k, v = (operands[name].clone() for name in "qkv")
    attend = importlib.import_module("sageattention").sageattn
    return {"out": attend(q, k, v, tensor_layout="HND", is_causal=bool(case.sizes["CAUSAL"]))}


def _wrong_scores(q: Tensor, k: Tensor, u: float) -> Tensor:
    """Bound what the codes of queries and keys make of a score, before its scale.

    Each code is half a step off at most, of the largest number of its head: blocks are smaller.
    Such errors are independent, so their sum grows as the root of their number (Hoeffding's
    inequality, as in Higham and Mary 2019); keys were rounded, too, without their mean.
    """
    top_q, top_k = (t.abs().amax((-1, -2), keepdim=True) * _STEP for t in (q, k))
    size = q.shape[-1]
    worst = q.abs().sum(-1, keepdim=True) * top_k + top_q * k.abs().sum(-1)[..., None, :]
    likely = q.norm(dim=-1, keepdim=True) * top_k + top_q * k.norm(dim=-1)[..., None, :]
    return (
        torch().minimum(worst, _SIGMAS * likely) + size * top_q * top_k + u * (q.abs() @ k.abs().mT)
    )


def _whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return attention; a score that is wrong by d makes its probability exp(2 d) times another.

    Without a mean of the keys every score of a query moves by the same, which changes nothing.
    """
    q, k, v = (operands[name] for name in "qkv")
    scale = 1 / math.sqrt(q.shape[-1])
    centred = k - k.mean(-2, keepdim=True)
    scores = q @ centred.mT * scale
    if case.sizes["CAUSAL"]:
        hidden = torch().ones(scores.shape[-2:], dtype=torch().bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    chances = scores.softmax(-1)
    # Both ends of a subtraction count, in whichever of the two types keys are kept.
    wrong = _wrong_scores(q, centred, 2.0**-7) * scale
    most = wrong.masked_fill(chances == 0, 0.0).amax(-1, keepdim=True)
    blur = torch().expm1(wrong + most)
    # Sums of 64 probabilities times values are kept in fp16 (sageattention, `_attn_fwd_inner`).
    return {
        "out": {
            "value": chances @ v,
            # In units of fp32, in which the rest is computed.
            "magnitude": (chances * (1 + blur * 2.0**24)) @ v.abs(),
            "rounded": 64 * (chances * (1 + blur) + LEAST_NORMAL) @ v.abs(),
            "terms": 1,
        }
    }


ATTENTION = Op(
    name="sageattention.sageattn",
    family="sageattention",
    dtypes={
        name: Dtype(
            min_sm="sm_80",
            tolerance=Tolerance(
                accumulate="fp32",
                operand="fp16",
                source="SageAttention, arXiv 2410.02367, section 4: int8 scores, fp16 sums;"
                " Higham and Mary 2019 for sums of independent errors",
            ),
        )
        for name in ("fp16", "bf16")
    },
    cases=(
        Case(sizes=dims(Z=2, H=3, T=128, HEAD=64, CAUSAL=0)),
        Case(sizes=dims(Z=2, H=3, T=131, HEAD=64, CAUSAL=1)),
        Case(sizes=dims(Z=1, H=2, T=256, HEAD=128, CAUSAL=1)),
        Case(sizes=dims(Z=2, H=3, T=131, HEAD=64, CAUSAL=0)),
    ),
    inputs=heads.draw,
    call=_attend,
    reference=_whole,
    exact=(),
    watched=True,
    deadline=60,
)

SMOKE = Smoke(
    module="sageattention", distributions=("sageattention",), ops=(ATTENTION,), tried=False
)
