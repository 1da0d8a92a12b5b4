"""c = a @ w.T with w = (q - zero) * scale: eight weights a word, 128 for each scale and zero."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

GROUP = 128


@triton.jit
def int4_matmul_kernel(
    a,
    packed,
    scales,
    zeros,
    c,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one block of c."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    groups = K // GROUP
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        at = k + depth
        a_tile = tl.load(a + rows[:, None] * K + at[None, :], mask=rows[:, None] < M, other=0.0)
        words = tl.load(
            packed + columns[None, :] * (K // 8) + at[:, None] // 8,
            mask=columns[None, :] < N,
            other=0,
        )
        quants = (words >> (at[:, None] % 8 * 4)) & 15
        group = columns * groups + k // GROUP
        scale = tl.load(scales + group, mask=columns < N, other=0.0).to(tl.float32)
        zero = tl.load(zeros + group, mask=columns < N, other=0)
        weights = (quants - zero[None, :]).to(tl.float32) * scale[None, :]
        total = tl.dot(a_tile, weights.to(a_tile.dtype), total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    result = total.to(c.dtype.element_ty)
    tl.store(c + rows[:, None] * N + columns[None, :], result, mask=inside)


def _constants(config):
    return {"GROUP": GROUP, **{name: config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}}


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    data = f"*{dtype}"
    return [
        {
            "fn": int4_matmul_kernel,
            "signature": {
                "a": data,
                "packed": "*i32",
                "scales": data,
                "zeros": "*i32",
                "c": data,
                "M": "i32",
                "N": "i32",
                "K": "i32",
            },
            "constexprs": _constants(config),
            "divisible": ("a", "packed", "scales", "zeros", "c", "M", "N", "K"),
        }
    ]


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch."""
    rows, columns, depth = shape["M"], shape["N"], shape["K"]
    return {
        "a": draw.values(rows, depth),
        "packed": draw.integers(-(2**31), 2**31, columns, depth // 8),
        "scales": draw.positive(columns, depth // GROUP),
        "zeros": draw.integers(0, 16, columns, depth // GROUP),
    }


def launch(operands, config):
    """Run the kernel; outputs start as values that nothing computes."""
    import torch

    a, packed, scales, zeros = (operands[n] for n in ("a", "packed", "scales", "zeros"))
    (rows, depth), columns = a.shape, packed.shape[0]
    c = torch.full((rows, columns), float("nan"), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(rows, config["BLOCK_M"]), triton.cdiv(columns, config["BLOCK_N"]))
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    int4_matmul_kernel[grid](
        a, packed, scales, zeros, c, rows, columns, depth, **_constants(config), **options
    )
    return {"c": c}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know."""
    import torch

    a, scales = (operands[name].cpu().double() for name in ("a", "scales"))
    packed, zeros = (operands[name].cpu().long() for name in ("packed", "zeros"))
    shifts = torch.arange(0, 32, 4)
    quants = (packed[:, :, None] >> shifts & 15).reshape(packed.shape[0], -1)
    spread = {"repeats": GROUP, "dim": 1}
    w = (quants - zeros.repeat_interleave(**spread)).double() * scales.repeat_interleave(**spread)
    return {"c": {"value": a @ w.T, "magnitude": a.abs() @ w.abs().T, "terms": a.shape[1]}}
