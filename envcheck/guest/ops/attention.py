"""Scaled dot-product attention, with each backend that torch may choose forced in turn."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from functools import partial

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.torches import functional, torch

LEAST_NORMAL = 2.0**-14
"""Of fp16: a smaller probability loses digits when it is rounded."""
_SOURCE = (
    "Higham 3.5 for each product, probabilities and their gradients rounded once in between;"
    " Blanchard, Higham and Higham 2021 for the softmax"
)


def _rules(*names: str, min_sm: str) -> dict[str, Dtype]:
    return {
        name: Dtype(
            min_sm=min_sm,
            tolerance=Tolerance(
                accumulate="fp32-truncated",
                operand="tf32-operands" if name == "tf32" else name,
                source=_SOURCE,
            ),
        )
        for name in names
    }


def _draw(case: Case, draw: Operands) -> Tensors:
    s = case.sizes
    shape = (s["Z"], s.get("KEY_HEADS", s["H"]), s.get("KEYS", s["T"]), s["HEAD"])
    return {
        "q": draw.values(s["Z"], s["H"], s["T"], s["HEAD"]),
        "k": draw.values(*shape),
        "v": draw.values(*shape),
    }


def _attend(backend: str, operands: Tensors, case: Case) -> Tensors:
    attention = importlib.import_module("torch.nn.attention")
    options = {"enable_gqa": True} if "KEY_HEADS" in case.sizes else {}
    with attention.sdpa_kernel([getattr(attention.SDPBackend, backend)]):
        out = functional().scaled_dot_product_attention(
            *(operands[n] for n in "qkv"), is_causal=bool(case.sizes["CAUSAL"]), **options
        )
    return {"out": out}


def reference(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return attention and its gradients in float64, with what a tolerance needs to know.

    `blur` is what the roundings of a score make of its probability, relatively: |q| |k| of the
    product and the distance to the maximum. The gradient of a probability is a difference,
    whose two sides count with their sizes; its second side takes the stored output.
    """
    heads = case.sizes["H"] // case.sizes.get("KEY_HEADS", case.sizes["H"])
    q, k, v = (operands[name] for name in "qkv")
    k, v = (t.repeat_interleave(heads, 1) for t in (k, v))
    scale = 1 / math.sqrt(q.shape[-1])
    scores = q @ k.mT * scale
    if case.sizes["CAUSAL"]:
        hidden = torch().ones(scores.shape[-2:], dtype=torch().bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    chances = scores.softmax(-1)
    sizes = q.abs() @ k.abs().mT * scale
    blur = 1 + 2 * sizes + 2 * (chances * sizes).sum(-1, keepdim=True)
    out = chances @ v
    terms = k.shape[-2] + q.shape[-1] + 16
    found: dict[str, Expected] = {
        "out": {
            "value": out,
            "magnitude": (chances * blur) @ v.abs(),
            "rounded": (chances + LEAST_NORMAL) @ v.abs(),
            "terms": terms,
        }
    }
    if "grad_out" in operands:
        flow = (q, k, v, out, operands["grad_out"], chances, blur)
        found |= _gradients(*flow, scale=scale, heads=heads, terms=terms)
    return found


def _gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    do: Tensor,
    chances: Tensor,
    blur: Tensor,
    *,
    scale: float,
    heads: int,
    terms: int,
) -> dict[str, Expected]:
    slopes = do @ v.mT
    steps = chances * (slopes - (out * do).sum(-1, keepdim=True))
    rounded_delta = (out * do).abs().sum(-1, keepdim=True)
    flow_delta = ((chances * blur) @ v.abs() * do.abs()).sum(-1, keepdim=True)
    flow = chances * blur * (do.abs() @ v.abs().mT + rounded_delta) + chances * flow_delta
    rounded = steps.abs() + chances * rounded_delta + LEAST_NORMAL
    parts = {
        "d_q": (steps @ k, flow @ k.abs(), rounded @ k.abs(), scale),
        "d_k": (steps.mT @ q, flow.mT @ q.abs(), rounded.mT @ q.abs(), scale),
        "d_v": (
            chances.mT @ do,
            (chances * blur).mT @ do.abs(),
            (chances + LEAST_NORMAL).mT @ do.abs(),
            1.0,
        ),
    }
    found: dict[str, Expected] = {}
    for name, (value, magnitude, passed, factor) in parts.items():
        together: Callable[[Tensor], Tensor] = _whole if name == "d_q" else partial(_fold, heads)
        found[name] = {
            "value": together(value) * factor,
            "magnitude": together(magnitude) * factor,
            # Of several query heads each part of a sum is rounded on its own.
            "rounded": together(passed + (value.abs() if heads > 1 else 0)) * factor,
            "terms": terms * (1 if name == "d_q" else heads),
        }
    return found


def _whole(tensor: Tensor) -> Tensor:
    return tensor


def _fold(heads: int, tensor: Tensor) -> Tensor:
    """Sum up what the query heads give to the key head that they share."""
    return tensor.unflatten(1, (-1, heads)).sum(2)


def _cases(*sizes: dict[str, int], half: int | None = None) -> tuple[Case, ...]:
    """Return these sizes, and the first with other layouts and patterns; fp16 for some alone."""
    plain = [
        Case(sizes=s, only=() if half is None or n < half else ("bf16", "fp32"))
        for n, s in enumerate(sizes)
    ]
    odd = [
        Case(sizes=sizes[0], layout="heads-last"),
        Case(sizes=sizes[0], pattern="ones"),
        Case(sizes=sizes[0], pattern="zeros"),
    ]
    return (*plain, *odd)


def _heads(*heads: int) -> list[dict[str, int]]:
    return [dims(Z=2, H=3, T=131, HEAD=head, CAUSAL=causal) for head in heads for causal in (0, 1)]


_ONE = dims(Z=1, H=2, T=1, HEAD=64, CAUSAL=0)
_CROSS = dims(Z=1, H=2, T=67, KEYS=259, HEAD=64, CAUSAL=0)
_LONG = dims(Z=1, H=1, T=1027, HEAD=64, CAUSAL=1)
_GROUPED = dims(Z=1, H=6, KEY_HEADS=2, T=131, HEAD=64, CAUSAL=1)


def _op(
    backend: str,
    dtypes: Mapping[str, Dtype],
    cases: tuple[Case, ...],
    passes: tuple[str, ...] = ("forward", "backward"),
) -> Op:
    return Op(
        name=f"sdpa-{backend.partition('_')[0].lower()}",
        family="attention",
        dtypes=dtypes,
        cases=cases,
        inputs=_draw,
        call=partial(_attend, backend),
        reference=reference,
        gradients=("q", "k", "v"),
        passes=passes,
        apart=backend != "MATH",
        exact=("zeros",),
        atomics=("backward",),
        # It is what others fall back to, and has no other way itself.
        watched=backend != "MATH",
    )


OPS = (
    _op(
        "FLASH_ATTENTION",
        _rules("bf16", "fp16", min_sm="sm_80"),
        _cases(*_heads(64, 128, 32, 96, 256), _GROUPED, _CROSS, _LONG, _ONE),
    ),
    _op(
        "EFFICIENT_ATTENTION",
        _rules("bf16", "fp16", "fp32", min_sm="sm_80"),
        _cases(*_heads(64, 128, 32, 80, 256), _CROSS, _LONG, _ONE),
    ),
    # A plan takes more than half a second for each size and pass; a single query has none.
    _op(
        "CUDNN_ATTENTION",
        _rules("bf16", "fp16", min_sm="sm_80"),
        _cases(_heads(64)[0], {**_GROUPED, "HEAD": 128}, half=1),
        passes=("backward",),
    ),
    _op(
        "MATH",
        _rules("bf16", "fp16", "fp32", min_sm="sm_80"),
        _cases(*_heads(64, 128, 256), _GROUPED, _CROSS, _ONE),
    ),
)
