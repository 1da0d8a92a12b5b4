"""c = a @ w.T: rows of activations times rows of weights, so that K runs along both in memory."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a,
    w,
    c,
    M,
    N,
    K,
    lda,
    ldw,
    ldc,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    INTEGER: tl.constexpr,
):
    """Compute one block of c."""
    # Blocks that share rows run near each other, for the sake of the L2 cache.
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = program // (GROUP_M * tiles_n) * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = program % (GROUP_M * tiles_n)
    rows = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * lda + depth[None, :]
    w_at = w + columns[None, :] * ldw + depth[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if INTEGER else tl.float32)
    for k in range(0, K, BLOCK_K):
        a_inside = (rows[:, None] < M) & (depth[None, :] < K - k)
        w_inside = (columns[None, :] < N) & (depth[:, None] < K - k)
        a_tile = tl.load(a_at, mask=a_inside, other=0 if INTEGER else 0.0)
        w_tile = tl.load(w_at, mask=w_inside, other=0 if INTEGER else 0.0)
        total = tl.dot(a_tile, w_tile, total, out_dtype=tl.int32 if INTEGER else tl.float32)
        a_at += BLOCK_K
        w_at += BLOCK_K
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    result = total.to(c.dtype.element_ty)
    tl.store(c + rows[:, None] * ldc + columns[None, :], result, mask=inside)


def _constants(dtype, config):
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
    return {**{name: config[name] for name in names}, "INTEGER": dtype == "int8"}


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    data = "i8" if dtype == "int8" else dtype
    result = {"int8": "i32", "fp8e4nv": "fp16"}.get(dtype, dtype)
    sizes = ("M", "N", "K", "lda", "ldw", "ldc")
    return [
        {
            "fn": matmul_kernel,
            "signature": {
                "a": f"*{data}",
                "w": f"*{data}",
                "c": f"*{result}",
                **dict.fromkeys(sizes, "i32"),
            },
            "constexprs": _constants(dtype, config),
            "divisible": ("a", "w", "c", *sizes),
        }
    ]


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch."""
    return {"a": draw.values(shape["M"], shape["K"]), "w": draw.values(shape["N"], shape["K"])}


def launch(operands, config):
    """Run the kernel; outputs start as values that nothing computes."""
    import torch

    a, w = operands["a"], operands["w"]
    (rows, depth), columns = a.shape, w.shape[0]
    integer = a.dtype == torch.int8
    kind = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.float16}.get(a.dtype, a.dtype)
    poison = torch.iinfo(kind).min if integer else float("nan")
    c = torch.full((rows, columns), poison, dtype=kind, device=a.device)
    constants = _constants("int8" if integer else "", config)
    tiles = triton.cdiv(rows, config["BLOCK_M"]) * triton.cdiv(columns, config["BLOCK_N"])
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    sizes = (rows, columns, depth, a.stride(0), w.stride(0), c.stride(0))
    matmul_kernel[(tiles,)](a, w, c, *sizes, **constants, **options)
    return {"c": c}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know."""
    a, w = (operands[name].cpu().double() for name in ("a", "w"))
    return {"c": {"value": a @ w.T, "magnitude": a.abs() @ w.abs().T, "terms": a.shape[1]}}
