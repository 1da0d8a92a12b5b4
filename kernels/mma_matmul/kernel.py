"""c = a @ w.T, by an extension that must be loaded before `launch`."""

# ruff: noqa: ANN001, ANN201, ARG001, INP001 - a folder loaded by path, with every kernel's functions

from __future__ import annotations


def inputs(shape, config, draw):
    """Return the operands of one launch."""
    return {"a": draw.values(shape["M"], shape["K"]), "w": draw.values(shape["N"], shape["K"])}


def launch(operands, config):
    """Run the kernel; outputs start as values that nothing computes."""
    import torch

    a, w = operands["a"], operands["w"]
    c = torch.full((a.shape[0], w.shape[0]), float("nan"), dtype=a.dtype, device=a.device)
    torch.ops.envcheck_mma_matmul.forward(a, w, c)
    return {"c": c}


def reference(operands, config):
    """Return the same in float64, with what a tolerance needs to know."""
    a, w = (operands[name].cpu().double() for name in ("a", "w"))
    return {"c": {"value": a @ w.T, "magnitude": a.abs() @ w.abs().T, "terms": a.shape[1]}}
