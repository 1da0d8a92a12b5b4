"""h[t] = a[t] h[t-1] + b[t] along rows, from h[-1] = 0."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def combine(factor, summand, next_factor, next_summand):
    """Make one step of two."""
    return factor * next_factor, summand * next_factor + next_summand


@triton.jit
def scan_kernel(a, b, h, N, BLOCK: tl.constexpr):
    """Scan one row."""
    row = tl.program_id(0).to(tl.int64) * N
    steps = tl.arange(0, BLOCK)
    carry = tl.zeros((), tl.float32)
    for start in range(0, N, BLOCK):
        inside = start + steps < N
        at = row + start + steps
        factors = tl.load(a + at, mask=inside, other=1.0).to(tl.float32)
        summands = tl.load(b + at, mask=inside, other=0.0).to(tl.float32)
        factors, summands = tl.associative_scan((factors, summands), 0, combine)
        result = summands + factors * carry
        tl.store(h + at, result.to(h.dtype.element_ty), mask=inside)
        carry = tl.sum(tl.where(steps == BLOCK - 1, result, 0.0), 0)


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    return [
        {
            "fn": scan_kernel,
            "signature": {"a": f"*{dtype}", "b": f"*{dtype}", "h": f"*{dtype}", "N": "i32"},
            "constexprs": {"BLOCK": config["BLOCK"]},
            "divisible": ("a", "b", "h", "N"),
        }
    ]


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch; factors below 1, or the sums would run away."""
    return {
        "a": draw.positive(shape["M"], shape["N"]),
        "b": draw.values(shape["M"], shape["N"]),
    }


def launch(operands, config):
    """Run the kernel; outputs start as values that nothing computes."""
    import torch

    a, b = operands["a"], operands["b"]
    h = torch.full_like(b, float("nan"))
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    scan_kernel[(a.shape[0],)](a, b, h, a.shape[1], BLOCK=config["BLOCK"], **options)
    return {"h": h}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know."""
    import torch

    a, b = (operands[name].cpu().double().T.contiguous() for name in ("a", "b"))
    # Both recurrences at once, a step after another.
    factors, found = torch.stack((a, a.abs()), 1), torch.stack((b, b.abs()), 1)
    for now, factor, before in zip(found[1:], factors[1:], found, strict=False):
        now.addcmul_(factor, before)
    value, magnitude = found.unbind(1)
    return {"h": {"value": value.T, "magnitude": magnitude.T, "terms": 2 * len(b)}}
