"""out = a @ b, broken as the folder is named: copied into one folder for each fault."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

from pathlib import Path

import triton
import triton.language as tl

FAULT = Path(__file__).parent.name
SPLIT = 8
"""Programs that add to the same elements where they race."""
KEPT = []


@triton.jit
def product_kernel(
    a,
    b,
    out,
    flag,
    M,
    N,
    K,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    TAIL: tl.constexpr,
    IN_BF16: tl.constexpr,
    RACES: tl.constexpr,
    SKIPS: tl.constexpr,
    HANGS: tl.constexpr,
    FAR: tl.constexpr,
):
    """Compute one tile, or add a part of it."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    kind: tl.constexpr = tl.bfloat16 if IN_BF16 else tl.float32
    total = tl.zeros((BLOCK, BLOCK), kind)
    end = K
    if TAIL:
        end = K // BLOCK * BLOCK
    for start in range(tl.program_id(2) * BLOCK, end, BLOCK * SPLIT):
        depth = start + tl.arange(0, BLOCK)
        x_inside = (rows[:, None] < M) & (depth[None, :] < end)
        y_inside = (depth[:, None] < end) & (columns[None, :] < N)
        x = tl.load(a + rows[:, None] * K + depth[None, :], mask=x_inside, other=0.0)
        y = tl.load(b + depth[:, None] * N + columns[None, :], mask=y_inside, other=0.0)
        total = (total + tl.dot(x, y, input_precision="ieee").to(kind)).to(kind)
    last = M
    if SKIPS:
        last = M - 1
    inside = (rows[:, None] < last) & (columns[None, :] < N)
    place = out + rows[:, None] * N + columns[None, :]
    if HANGS:
        seen = tl.atomic_add(flag, 0)
        while seen == 0:
            seen = tl.atomic_add(flag, 0)
    if FAR:
        far = tl.full((BLOCK, BLOCK), 1 << 44, tl.int64)
        tl.store(place + far, total.to(out.dtype.element_ty), mask=inside)
    if RACES:
        # Reads, adds and writes as if no other program did so, which only atomics may.
        before = tl.load(place, mask=inside, other=0.0)
        tl.store(place, (before + total).to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(place, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def spread_kernel(x, y, N, BLOCK: tl.constexpr):
    """Spread one row over 0 to 1, without a thought for one whose elements are all the same."""
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    place = tl.program_id(0) * N + columns
    least = tl.min(tl.load(x + place, mask=inside, other=float("inf")).to(tl.float32), 0)
    most = tl.max(tl.load(x + place, mask=inside, other=float("-inf")).to(tl.float32), 0)
    row = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    result = (row - least) / (most - least)
    tl.store(y + place, result.to(y.dtype.element_ty), mask=inside)


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch."""
    return {"a": draw.values(shape["M"], shape["K"]), "b": draw.values(shape["K"], shape["N"])}


def launch(operands, config):
    """Run the kernel."""
    import torch

    a, b = operands["a"], operands["b"]
    if FAULT == "constant_rows":
        out = torch.full_like(a, float("nan"))
        spread_kernel[(len(a),)](a, out, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1]))
        return {"out": out}
    a.calls = getattr(a, "calls", 0) + 1
    split = SPLIT if FAULT == "race" else 1
    (m, k), n, block = a.shape, b.shape[1], config["BLOCK"]
    fill = torch.zeros if FAULT == "race" else torch.empty
    out = fill((m, n), dtype=a.dtype, device=a.device)
    flag = torch.zeros(1, dtype=torch.int32, device=a.device)
    grid = (triton.cdiv(m, block), triton.cdiv(n, block), split)
    product_kernel[grid](
        *(a, b, out, flag, m, n, k),
        BLOCK=block,
        SPLIT=split,
        TAIL=FAULT == "k_tail",
        IN_BF16=FAULT == "bf16_sums",
        RACES=FAULT == "race",
        SKIPS=FAULT == "uninitialised",
        HANGS=FAULT == "hang",
        FAR=FAULT == "illegal_address",
    )
    if FAULT == "one_shape" and m == 33:
        out.zero_()
    if FAULT == "second_call" and a.calls == 2:
        out += 1
    if FAULT == "leak":
        KEPT.append(out)
    return {"out": out}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know."""
    a, b = (operands[name].cpu().double() for name in "ab")
    if FAULT == "constant_rows":
        least, most = a.amin(1, keepdim=True), a.amax(1, keepdim=True)
        size = (most - least).where(most > least, 1.0)
        flow = (a.abs() + least.abs()) / size
        return {"out": {"value": (a - least) / size, "magnitude": 1 + 3 * flow, "terms": 8}}
    return {"out": {"value": a @ b, "magnitude": a.abs() @ b.abs(), "terms": a.shape[1] + 2}}
