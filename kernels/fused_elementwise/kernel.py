"""y = gelu(x + bias) * scale + residual, by an extension that must be loaded before `launch`."""

# ruff: noqa: ANN001, ANN201, ARG001, INP001 - a folder loaded by path, with every kernel's functions

from __future__ import annotations

import math

SCALE = 1.25


def inputs(shape, config, draw):
    """Return the operands of one launch."""
    rows, columns = shape["M"], shape["N"]
    return {
        "x": draw.values(rows, columns),
        "bias": draw.values(columns),
        "residual": draw.values(rows, columns),
    }


def launch(operands, config):
    """Run the kernel; outputs start as values that nothing computes."""
    import torch

    x, bias, residual = (operands[name] for name in ("x", "bias", "residual"))
    y = torch.full_like(x, float("nan"))
    torch.ops.envcheck_fused_elementwise.forward(x, bias, residual, SCALE, y)
    return {"y": y}


def reference(operands, config):
    """Return the same in float64, with what a tolerance needs to know.

    The sum's rounding is one of |x| + |bias|, which gelu, of slope at most 1.13, passes on;
    where 1 + erf cancels, an absolute error of a few units stays, times half the sum.
    """
    import torch

    x, bias, residual = (operands[name].cpu().double() for name in ("x", "bias", "residual"))
    total = x + bias
    value = 0.5 * total * (1 + torch.erf(total / math.sqrt(2)))
    magnitude = SCALE * (1.13 * (x.abs() + bias.abs()) + total.abs()) + residual.abs()
    return {"y": {"value": value * SCALE + residual, "magnitude": magnitude, "terms": 8}}
