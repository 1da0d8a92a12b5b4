"""A step of training and what goes round it: optimizer, scaler, checkpoints, five steps."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, exactly, only
from envcheck.guest.ops.torches import claim, functional, held, sure, torch

_STEPS = 3
_RATE, _DECAY, _FIRST, _SECOND, _EPSILON = 2.0**-6, 2.0**-4, 0.875, 0.984375, 2.0**-20
"""Of AdamW; numbers that fp32 holds exactly, so that none differs from its reference."""

_DYNAMO = ("torch._dynamo",)
"""Optimizers and checkpoints ask it whether they are being compiled."""


def _draw_step(case: Case, draw: Operands) -> Tensors:
    size = case.sizes["N"]
    return {"p": draw.values(size), "gradients": draw.values(_STEPS, size)}


def _adamw(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    parameter = operands["p"].clone().requires_grad_()
    optimizer = torch().optim.AdamW(
        [parameter],
        lr=_RATE,
        betas=(_FIRST, _SECOND),
        eps=_EPSILON,
        weight_decay=_DECAY,
        fused=True,
    )
    for gradient in operands["gradients"]:
        parameter.grad = gradient.clone()
        optimizer.step()
    return {"p": parameter.detach()}


def _adamw_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    """Return the parameter after some steps (Loshchilov and Hutter 2019, algorithm 2)."""
    value = operands["p"].clone()
    size, first, second = value.abs(), 0 * value, 0 * value
    flow = first.clone()
    for step, gradient in enumerate(operands["gradients"], 1):
        first = _FIRST * first + (1 - _FIRST) * gradient
        flow = _FIRST * flow + (1 - _FIRST) * gradient.abs()
        second = _SECOND * second + (1 - _SECOND) * gradient.square()
        root = (second / (1 - _SECOND**step)).sqrt() + _EPSILON
        value = value * (1 - _RATE * _DECAY) - _RATE * first / (1 - _FIRST**step) / root
        size = size + _RATE * flow / (1 - _FIRST**step) / root
    return {"p": {"value": value, "magnitude": size, "terms": 16 * _STEPS}}


ADAMW = Op(
    name="adamw-fused",
    family="training",
    dtypes={
        "fp32": Dtype(
            min_sm="sm_50",
            tolerance=Tolerance(
                accumulate="fp32", source="Higham 3.1: at most 16 roundings for each step"
            ),
        )
    },
    cases=(
        Case(sizes=dims(N=10_007)),
        Case(sizes=dims(N=1)),
        Case(sizes=dims(N=513), pattern="zeros"),
    ),
    inputs=_draw_step,
    call=_adamw,
    reference=_adamw_whole,
    imports=_DYNAMO,
    exact=("zeros",),
)


def _draw_scaled(case: Case, draw: Operands) -> Tensors:
    rows, width = case.sizes["M"], case.sizes["N"]
    return {"x": draw.values(rows, width, dtype="fp32"), "_w": draw.values(width, dtype="fp32")}


def _scaler(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    """Take a step with a scaled loss, then one whose gradient overflows and must be left out."""
    x, kind = operands["x"], operands["x"].device.type
    weight = operands["_w"].clone().requires_grad_()
    optimizer = torch().optim.SGD([weight], lr=1.0)
    scaler = torch().amp.GradScaler(kind, init_scale=2.0**8, growth_interval=1000)
    kinds, grad = [], torch().enable_grad
    for factor in (1.0, float("inf")):
        optimizer.zero_grad()
        with grad(), torch().autocast(kind, dtype=torch().float16):
            out = x @ weight[:, None]
            loss = scaler.scale((out.float() * factor).sum())
        kinds.append(out.dtype)
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
    low = all(k == torch().float16 for k in kinds)
    return {
        "w": weight.detach(),
        "scale": torch().full((1,), scaler.get_scale(), device=x.device),
        "autocast computes in fp16": claim(low, x),
    }


def _scaler_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    value = operands["_w"] - operands["x"].sum(0)
    half = torch().full((1,), 2.0**7)
    return {"w": sure(value), "scale": sure(half), "autocast computes in fp16": held()}


SCALER = Op(
    name="amp-grad-scaler",
    family="training",
    dtypes=exactly("fp16"),
    cases=(Case(sizes=dims(M=65, N=33), pattern="integers"),),
    inputs=_draw_scaled,
    call=_scaler,
    reference=_scaler_whole,
    imports=_DYNAMO,
)


def _draw_two(case: Case, draw: Operands) -> Tensors:
    m, k, h, n = (case.sizes[name] for name in "MKHN")
    return {"x": draw.values(m, k), "v": draw.values(k, h), "w": draw.values(h, n)}


def _layers(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return (x @ v) @ w


def _checkpointed(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    checkpoint: Any = importlib.import_module("torch.utils.checkpoint").checkpoint
    operands_in_order = [operands[n] for n in "xvw"]
    return {"out": checkpoint(_layers, *operands_in_order, use_reentrant=False)}


def _two_products(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": _layers(*(operands[n] for n in "xvw"))}


def _two_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    m, k, h, n = (case.sizes[name] for name in "MKHN")
    return {"out": k + h, "d_x": n + h, "d_v": n + m, "d_w": m + k}


CHECKPOINT = Op(
    name="checkpoint",
    family="training",
    dtypes=only(MATRIX_UNITS, "fp32"),
    cases=(
        Case(sizes=dims(M=65, K=130, H=67, N=33)),
        Case(sizes=dims(M=5, K=7, H=9, N=11), pattern="integers"),
    ),
    inputs=_draw_two,
    call=_checkpointed,
    reference=linear.reference(_two_products, _two_terms, ("x", "v", "w")),
    gradients=("x", "v", "w"),
    imports=_DYNAMO,
)


def _draw_model(case: Case, draw: Operands) -> Tensors:
    width, names = case.sizes["D"], ("q", "k", "v", "o", "up", "down")
    sizes = {"up": (width, 4 * width), "down": (4 * width, width)}
    tensors = {
        f"{name}{layer}": draw.values(*sizes.get(name, (width, width))) * (0.5 / width**0.5)
        for layer in range(2)
        for name in names
    }
    table = draw.values(case.sizes["V"], width)
    tokens = draw.integers(0, case.sizes["V"], case.sizes["B"], case.sizes["T"] + 1).long()
    return {**tensors, "table": table, "_tokens": tokens}


def _transformer(weights: Tensors, case: Case) -> Tensor:
    """Return the loss of two layers: attention and a feed-forward part, each after a norm."""
    heads, width, kit = case.sizes["H"], case.sizes["D"], functional()
    tokens = weights["_tokens"]
    x = kit.embedding(tokens[:, :-1], weights["table"])
    for layer in range(2):
        y = kit.layer_norm(x, (width,))
        q, k, v = (
            (y @ weights[f"{n}{layer}"]).unflatten(-1, (heads, -1)).transpose(1, 2) for n in "qkv"
        )
        seen = kit.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + seen.transpose(1, 2).flatten(-2) @ weights[f"o{layer}"]
        y = kit.layer_norm(x, (width,))
        x = x + kit.gelu(y @ weights[f"up{layer}"]) @ weights[f"down{layer}"]
    logits = kit.layer_norm(x, (width,)) @ weights["table"].t()
    return kit.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _train(operands: Tensors, case: Case) -> Tensor:
    """Return the losses of some steps of plain gradient descent."""
    weights = {n: t.clone() for n, t in operands.items()}
    trained = [n for n, t in weights.items() if t.is_floating_point()]
    losses = []
    for _ in range(case.sizes["STEPS"]):
        for name in trained:
            weights[name] = weights[name].detach().requires_grad_()
        with torch().enable_grad():
            loss = _transformer(weights, case)
        losses.append(loss.detach())
        slopes = torch().autograd.grad(loss, [weights[n] for n in trained])
        for name, slope in zip(trained, slopes, strict=True):
            weights[name] = weights[name].detach() - 0.05 * slope
    return torch().stack(losses)


def _five_steps(operands: Tensors, case: Case) -> Tensors:
    losses = _train(operands, case).float()
    return {"losses": losses, "losses fall": claim((losses.diff() < 0).all(), losses)}


def _five_steps_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    return {"losses": {"value": _train(operands, case)}, "losses fall": held()}


TRANSFORMER = Op(
    name="transformer",
    family="training",
    dtypes=only(MATRIX_UNITS, "bf16", "fp32"),
    cases=(Case(sizes=dims(B=4, T=67, D=96, H=3, V=257, STEPS=5)),),
    inputs=_draw_model,
    call=_five_steps,
    reference=_five_steps_whole,
    exact=(),
    atomics=("forward",),
)

OPS = (TRANSFORMER, ADAMW, SCALER, CHECKPOINT)
