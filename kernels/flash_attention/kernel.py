"""o = softmax(q @ k.T / sqrt(d)) @ v for each head, and the gradients for q, k and v."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import math

import triton
import triton.language as tl

LOG2E = math.log2(math.e)
LEAST_NORMAL = 2.0**-14
"""Of fp16: a smaller probability loses digits when it is rounded."""


@triton.jit
def forward_kernel(
    q,
    k,
    v,
    o,
    logs,
    T,
    scale,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute some rows of one head; logs are of base 2, and scale turns a product into such."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * T
    rows, features = start + tl.arange(0, BLOCK_M), tl.arange(0, HEAD)
    at_rows = head * HEAD + rows[:, None] * HEAD + features[None, :]
    q_tile = tl.load(q + at_rows, mask=rows[:, None] < T, other=0.0)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, HEAD), tl.float32)
    stop = tl.minimum(start + BLOCK_M, T) if CAUSAL else T
    for first in range(0, stop, BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        at = head * HEAD + columns[None, :] * HEAD + features[:, None]
        k_tile = tl.load(k + at, mask=columns[None, :] < T, other=0.0)
        scores = tl.dot(q_tile, k_tile) * scale
        seen = columns[None, :] < T
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        chances = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(chances, 1)
        at = head * HEAD + columns[:, None] * HEAD + features[None, :]
        v_tile = tl.load(v + at, mask=columns[:, None] < T, other=0.0)
        result = tl.dot(chances.to(v_tile.dtype), v_tile, result * shrink[:, None])
        top = higher
    result = result / total[:, None]
    tl.store(o + at_rows, result.to(o.dtype.element_ty), mask=rows[:, None] < T)
    tl.store(logs + head + rows, top + tl.log2(total), mask=rows < T)


@triton.jit
def delta_kernel(o, do, deltas, T, HEAD: tl.constexpr, BLOCK_M: tl.constexpr):
    """Compute what every gradient of a row of scores loses: the sum of o times its gradient."""
    head = tl.program_id(1).to(tl.int64) * T
    rows, features = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, HEAD)
    at = head * HEAD + rows[:, None] * HEAD + features[None, :]
    o_tile = tl.load(o + at, mask=rows[:, None] < T, other=0.0).to(tl.float32)
    do_tile = tl.load(do + at, mask=rows[:, None] < T, other=0.0).to(tl.float32)
    tl.store(deltas + head + rows, tl.sum(o_tile * do_tile, 1), mask=rows < T)


@triton.jit
def backward_keys_kernel(
    q,
    k,
    v,
    do,
    dk,
    dv,
    logs,
    deltas,
    T,
    scale,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute the gradients for some keys and values of one head."""
    start = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1).to(tl.int64) * T
    columns, features = start + tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    at_columns = head * HEAD + columns[:, None] * HEAD + features[None, :]
    k_tile = tl.load(k + at_columns, mask=columns[:, None] < T, other=0.0)
    v_tile = tl.load(v + at_columns, mask=columns[:, None] < T, other=0.0)
    dk_tile = tl.zeros((BLOCK_N, HEAD), tl.float32)
    dv_tile = tl.zeros((BLOCK_N, HEAD), tl.float32)
    for first in range(start // BLOCK_M * BLOCK_M if CAUSAL else 0, T, BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        at = head * HEAD + rows[:, None] * HEAD + features[None, :]
        q_tile = tl.load(q + at, mask=rows[:, None] < T, other=0.0)
        do_tile = tl.load(do + at, mask=rows[:, None] < T, other=0.0)
        log = tl.load(logs + head + rows, mask=rows < T, other=float("inf"))
        delta = tl.load(deltas + head + rows, mask=rows < T, other=0.0)
        scores = tl.dot(k_tile, tl.trans(q_tile)) * scale
        chances = tl.exp2(scores - log[None, :])
        if CAUSAL:
            chances = tl.where(columns[:, None] <= rows[None, :], chances, 0.0)
        dv_tile = tl.dot(chances.to(do_tile.dtype), do_tile, dv_tile)
        slopes = chances * (tl.dot(v_tile, tl.trans(do_tile)) - delta[None, :])
        dk_tile = tl.dot(slopes.to(q_tile.dtype), q_tile, dk_tile)
    dk_tile *= scale * 0.6931471805599453
    tl.store(dk + at_columns, dk_tile.to(dk.dtype.element_ty), mask=columns[:, None] < T)
    tl.store(dv + at_columns, dv_tile.to(dv.dtype.element_ty), mask=columns[:, None] < T)


@triton.jit
def backward_queries_kernel(
    q,
    k,
    v,
    do,
    dq,
    logs,
    deltas,
    T,
    scale,
    HEAD: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute the gradients for some queries of one head."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * T
    rows, features = start + tl.arange(0, BLOCK_M), tl.arange(0, HEAD)
    at_rows = head * HEAD + rows[:, None] * HEAD + features[None, :]
    q_tile = tl.load(q + at_rows, mask=rows[:, None] < T, other=0.0)
    do_tile = tl.load(do + at_rows, mask=rows[:, None] < T, other=0.0)
    log = tl.load(logs + head + rows, mask=rows < T, other=float("inf"))
    delta = tl.load(deltas + head + rows, mask=rows < T, other=0.0)
    dq_tile = tl.zeros((BLOCK_M, HEAD), tl.float32)
    stop = tl.minimum(start + BLOCK_M, T) if CAUSAL else T
    for first in range(0, stop, BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        at = head * HEAD + columns[:, None] * HEAD + features[None, :]
        k_tile = tl.load(k + at, mask=columns[:, None] < T, other=0.0)
        v_tile = tl.load(v + at, mask=columns[:, None] < T, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile)) * scale
        chances = tl.exp2(scores - log[:, None])
        if CAUSAL:
            chances = tl.where(columns[None, :] <= rows[:, None], chances, 0.0)
        slopes = chances * (tl.dot(do_tile, tl.trans(v_tile)) - delta[:, None])
        dq_tile = tl.dot(slopes.to(k_tile.dtype), k_tile, dq_tile)
    dq_tile *= scale * 0.6931471805599453
    tl.store(dq + at_rows, dq_tile.to(dq.dtype.element_ty), mask=rows[:, None] < T)


def _constants(config, direction):
    """Return the constants of a kernel; backward has blocks of its own."""
    prefix = {"forward": "BLOCK", "backward": "BACK"}[direction]
    return {
        **{name: config[name] for name in ("HEAD", "CAUSAL")},
        **{f"BLOCK_{side}": config[f"{prefix}_{side}"] for side in "MN"},
    }


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    data, full, sizes = f"*{dtype}", "*fp32", {"T": "i32", "scale": "fp32"}
    read, stats = dict.fromkeys(("q", "k", "v"), data), {"logs": full, "deltas": full}
    backward = _constants(config, "backward")

    def one(fn, signature, constants):
        divisible = tuple(name for name in signature if name != "scale")
        return {
            "fn": fn,
            "signature": signature,
            "constexprs": constants,
            "divisible": divisible,
        }

    return [
        one(
            forward_kernel,
            {**read, "o": data, "logs": full, **sizes},
            _constants(config, "forward"),
        ),
        one(
            delta_kernel,
            {"o": data, "do": data, "deltas": full, "T": "i32"},
            {name: backward[name] for name in ("HEAD", "BLOCK_M")},
        ),
        one(
            backward_keys_kernel,
            {**read, "do": data, "dk": data, "dv": data, **stats, **sizes},
            backward,
        ),
        one(backward_queries_kernel, {**read, "do": data, "dq": data, **stats, **sizes}, backward),
    ]


def inputs(shape, config, draw):
    """Return the operands of one launch."""
    size = (shape["Z"], shape["T"], config["HEAD"])
    return {name: draw.values(*size) for name in ("q", "k", "v", "do")}


def launch(operands, config):
    """Run the kernels; outputs start as values that nothing computes."""
    import torch

    q, k, v, do = (operands[name] for name in ("q", "k", "v", "do"))
    heads, length, features = q.shape
    scale = LOG2E / math.sqrt(features)
    o, dq, dk, dv = (torch.full_like(q, float("nan")) for _ in range(4))
    logs, deltas = (
        torch.full((heads, length), float("nan"), dtype=torch.float32, device=q.device)
        for _ in range(2)
    )
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    forward, backward = (_constants(config, name) for name in ("forward", "backward"))
    across, down = (triton.cdiv(length, backward[f"BLOCK_{side}"]) for side in "NM")
    forward_kernel[(triton.cdiv(length, forward["BLOCK_M"]), heads)](
        q, k, v, o, logs, length, scale, **forward, **options
    )
    delta_kernel[(down, heads)](
        o, do, deltas, length, HEAD=features, BLOCK_M=backward["BLOCK_M"], **options
    )
    backward_keys_kernel[(across, heads)](
        q, k, v, do, dk, dv, logs, deltas, length, scale, **backward, **options
    )
    backward_queries_kernel[(down, heads)](
        q, k, v, do, dq, logs, deltas, length, scale, **backward, **options
    )
    return {"o": o, "dq": dq, "dk": dk, "dv": dv}


def reference(operands, config):
    """Return the same in float64, with what a tolerance needs to know.

    `blur` is what the roundings of a score make of its probability, relatively: |q| |k| of the
    product and the distance to the maximum. The gradient of a probability is a difference,
    whose two sides count with their sizes; its second side takes the stored output.
    """
    import torch

    q, k, v, do = (operands[name].cpu().double() for name in ("q", "k", "v", "do"))
    length, scale = q.shape[1], 1 / math.sqrt(q.shape[2])
    scores = q @ k.mT * scale
    if config["CAUSAL"]:
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    chances = scores.softmax(2)
    sizes = q.abs() @ k.abs().mT * scale
    blur = 1 + 2 * sizes + 2 * (chances * sizes).sum(2, keepdim=True)
    o = chances @ v
    slopes = do @ v.mT
    delta = (o * do).sum(2, keepdim=True)
    steps = chances * (slopes - delta)
    rounded_delta = (o * do).abs().sum(2, keepdim=True)
    flow_delta = ((chances * blur) @ v.abs() * do.abs()).sum(2, keepdim=True)
    flow = chances * blur * (do.abs() @ v.abs().mT + rounded_delta) + chances * flow_delta
    rounded = steps.abs() + chances * rounded_delta + LEAST_NORMAL
    rounded_chances = chances + LEAST_NORMAL
    terms = length + q.shape[2] + 16
    return {
        "o": {
            "value": o,
            "magnitude": (chances * blur) @ v.abs(),
            "rounded": rounded_chances @ v.abs(),
            "terms": terms,
        },
        "dq": {
            "value": steps @ k * scale,
            "magnitude": flow @ k.abs() * scale,
            "rounded": rounded @ k.abs() * scale,
            "terms": terms,
        },
        "dk": {
            "value": steps.mT @ q * scale,
            "magnitude": flow.mT @ q.abs() * scale,
            "rounded": rounded.mT @ q.abs() * scale,
            "terms": terms,
        },
        "dv": {
            "value": chances.mT @ do,
            "magnitude": (chances * blur).mT @ do.abs(),
            "rounded": rounded_chances.mT @ do.abs(),
            "terms": terms,
        },
    }
