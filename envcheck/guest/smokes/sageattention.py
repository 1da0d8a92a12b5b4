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


def _whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return attention, and what wrong scores make of it.

    Without a mean of the keys every score of a query moves by the same, which changes nothing.
    Sums of 64 probabilities times values are kept in fp16 (`_attn_fwd_inner`).
    """
    q, k, v = (operands[name] for name in "qkv")
    scale = 1 / math.sqrt(q.shape[-1])
    centred = k - k.mean(-2, keepdim=True)
    scores = q @ centred.mT * scale
    if case.sizes["CAUSAL"]:
        hidden = torch().ones(scores.shape[-2:], dtype=torch().bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    chances = scores.softmax(-1)
    return {
        "out": {
            "value": chances @ v,
            # In units of fp32, in which the rest is computed.
            "magnitude": chances @ v.abs() + _wrong(q, centred, v, chances, scale) * 2.0**24,
            "rounded": 64 * (chances + LEAST_NORMAL) @ v.abs(),
            "terms": 1,
        }
    }


def _wrong(q: Tensor, k: Tensor, v: Tensor, chances: Tensor, scale: float) -> Tensor:
    """Bound what the codes of queries and keys make of the output.

    With errors d of the scores the output is off by sum p (v - out) exp(d) / sum p exp(d). A
    code is half a step off at most, of the largest number of its head (blocks are smaller), and
    keys were rounded without their mean, too. Such errors are independent, so a sum of them
    leaves 8 times the root of the sum of their squares with chance 2 exp(-32) only (Hoeffding's
    inequality, as in Higham and Mary 2019). That bounds both what is linear in them and the
    largest d, hence what is left of the exponential: exp(d) - 1 - d.
    """
    step_q, step_k = (t.abs().amax((-1, -2), keepdim=True) * _STEP for t in (q, k))
    step_k = step_k + 2.0**-8 * k.abs().amax((-1, -2), keepdim=True)
    both = q.shape[-1] * step_q * step_k * scale
    squares = q.square().sum(-1)[..., None] * step_k**2
    each = (squares + step_q**2 * k.square().sum(-1)[..., None, :]).sqrt() * _SIGMAS * scale
    most = (each + both).masked_fill(chances == 0, 0.0).amax(-1, keepdim=True)
    out = chances @ v
    spread = (chances @ v.square() - out.square()).clamp(min=0).sqrt()
    by_query = torch().einsum("zhij,zhje,zhjd->zhied", chances, v, k)
    by_query = by_query - out[..., None] * (chances @ k)[..., None, :]
    twice = chances.square()
    by_key = twice @ v.square() - 2 * out * (twice @ v) + out.square() * twice.sum(-1, keepdim=True)
    linear = step_q**2 * by_query.square().sum(-1) + squares * by_key.clamp(min=0)
    rest = torch().expm1(most) - most + both
    return most.exp() * (_SIGMAS * scale * linear.sqrt() + rest * spread)


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
    # Whole blocks of queries. With other lengths version 1.0.6 is wrong wherever it runs: without
    # a mask padding counts (by a fifth for T=131), and with one an odd number of blocks of 64
    # keys makes it read a scale behind the last one, which is whatever lies there.
    cases=(
        Case(sizes=dims(Z=2, H=3, T=128, HEAD=64, CAUSAL=0)),
        Case(sizes=dims(Z=2, H=3, T=128, HEAD=64, CAUSAL=1)),
        Case(sizes=dims(Z=1, H=2, T=256, HEAD=128, CAUSAL=1)),
    ),
    inputs=heads.draw,
    call=_attend,
    reference=_whole,
    exact=(),
    watched=True,
    deadline=60,
)

SMOKE = Smoke(
    module="sageattention", distributions=("sageattention",), ops=(ATTENTION,), tried=True
)
