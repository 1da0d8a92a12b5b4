"""y = softmax(x) along rows of any length, with the maximum and the sum in one pass."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, N, BLOCK: tl.constexpr):
    """Normalise one row."""
    row = tl.program_id(0).to(tl.int64) * N
    columns = tl.arange(0, BLOCK)
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, N, BLOCK):
        inside = start + columns < N
        part = tl.load(x + row + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(part, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(part - higher), 0)
        top = higher
    for start in range(0, N, BLOCK):
        inside = start + columns < N
        part = tl.load(x + row + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        result = tl.exp(part - top) / total
        tl.store(y + row + start + columns, result.to(y.dtype.element_ty), mask=inside)


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    return [
        {
            "fn": softmax_kernel,
            "signature": {"x": f"*{dtype}", "y": f"*{dtype}", "N": "i32"},
            "constexprs": {"BLOCK": config["BLOCK"]},
            "divisible": ("x", "y", "N"),
        }
    ]


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch."""
    return {"x": draw.values(shape["M"], shape["N"])}


def launch(operands, config):
    """Run the kernel; outputs start as values that nothing computes."""
    import torch

    x = operands["x"]
    y = torch.full_like(x, float("nan"))
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=config["BLOCK"], **options)
    return {"y": y}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know.

    An error of a rounding in x - max is one of exp(x - max) times its size; the sum has N
    terms, and the exponential of the hardware is right to 4 units (PTX ISA, ex2.approx).
    """
    x = operands["x"].cpu().double()
    y = x.softmax(1)
    depth = (x - x.amax(1, keepdim=True)).abs()
    magnitude = y * (1 + depth + (y * depth).sum(1, keepdim=True))
    return {"y": {"value": y, "magnitude": magnitude, "terms": x.shape[1] + 16}}
