"""z = x + y, element by element."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, z, N, BLOCK: tl.constexpr):
    """Add one block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    tl.store(z + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    types = {"int32": "i32"}.get(dtype, dtype)
    return [
        {
            "fn": add_kernel,
            "signature": {"x": f"*{types}", "y": f"*{types}", "z": f"*{types}", "N": "i32"},
            "constexprs": {"BLOCK": config["BLOCK"]},
            "divisible": ("x", "y", "z", "N"),
        }
    ]


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch."""
    return {"x": draw.values(shape["N"]), "y": draw.values(shape["N"])}


def launch(operands, config):
    """Run the kernel; outputs start as values that nothing computes."""
    import torch

    x, y = operands["x"], operands["y"]
    poison = float("nan") if x.is_floating_point() else torch.iinfo(x.dtype).min
    z = torch.full_like(x, poison)
    grid = (triton.cdiv(x.numel(), config["BLOCK"]),)
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    add_kernel[grid](x, y, z, x.numel(), BLOCK=config["BLOCK"], **options)
    return {"z": z}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know."""
    x, y = (operands[name].cpu().double() for name in ("x", "y"))
    return {"z": {"value": x + y, "magnitude": x.abs() + y.abs(), "terms": 1}}
