"""loss = log(sum(exp(x))) - x[label] for each row, and the gradient for x."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def forward_kernel(x, labels, losses, sums, N, BLOCK: tl.constexpr):
    """Compute the loss of one row."""
    row = tl.program_id(0)
    x += row.to(tl.int64) * N
    columns = tl.arange(0, BLOCK)
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + columns
        part = tl.load(x + at, mask=at < N, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(part, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(part - higher), 0)
        top = higher
    log_sum = top + tl.log(total)
    chosen = tl.load(x + tl.load(labels + row)).to(tl.float32)
    tl.store(sums + row, log_sum)
    tl.store(losses + row, log_sum - chosen)


@triton.jit
def backward_kernel(x, labels, sums, dloss, dx, N, BLOCK: tl.constexpr):
    """Compute the gradient for a part of one row."""
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offset = row.to(tl.int64) * N
    part = tl.load(x + offset + at, mask=at < N, other=float("-inf")).to(tl.float32)
    chance = tl.exp(part - tl.load(sums + row))
    wanted = tl.where(at == tl.load(labels + row), 1.0, 0.0)
    result = (chance - wanted) * tl.load(dloss + row)
    tl.store(dx + offset + at, result.to(dx.dtype.element_ty), mask=at < N)


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    data, full, whole = f"*{dtype}", "*fp32", "*i32"
    return [
        {
            "fn": forward_kernel,
            "signature": {"x": data, "labels": whole, "losses": full, "sums": full, "N": "i32"},
            "constexprs": {"BLOCK": config["BLOCK"]},
            "divisible": ("x", "labels", "losses", "sums", "N"),
        },
        {
            "fn": backward_kernel,
            "signature": {
                "x": data,
                "labels": whole,
                "sums": full,
                "dloss": full,
                "dx": data,
                "N": "i32",
            },
            "constexprs": {"BLOCK": config["BLOCK"]},
            "divisible": ("x", "labels", "sums", "dloss", "dx", "N"),
        },
    ]


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch."""
    rows, columns = shape["M"], shape["N"]
    return {
        "x": draw.values(rows, columns),
        "labels": draw.integers(0, columns, rows),
        "dloss": draw.values(rows, dtype="fp32"),
    }


def launch(operands, config):
    """Run the kernels; outputs start as values that nothing computes."""
    import torch

    x, labels, dloss = (operands[name] for name in ("x", "labels", "dloss"))
    rows, columns = x.shape
    losses, sums = torch.full((2, rows), float("nan"), dtype=torch.float32, device=x.device)
    dx = torch.full_like(x, float("nan"))
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    block = config["BLOCK"]
    forward_kernel[(rows,)](x, labels, losses, sums, columns, BLOCK=block, **options)
    backward_kernel[(rows, triton.cdiv(columns, block))](
        x, labels, sums, dloss, dx, columns, BLOCK=block, **options
    )
    return {"losses": losses, "dx": dx}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know."""
    import torch

    x, dloss = (operands[name].cpu().double() for name in ("x", "dloss"))
    labels = operands["labels"].cpu().long()[:, None]
    sums = x.logsumexp(1, keepdim=True)
    top, chosen = x.amax(1, keepdim=True), x.gather(1, labels)
    chance = x.softmax(1)
    wanted = torch.zeros_like(x).scatter_(1, labels, 1.0)
    flow = top.abs() + (sums - top) + 1 + (chance * (top - x)).sum(1, keepdim=True)
    gradient = (chance - wanted) * dloss[:, None]
    terms = x.shape[1] + 16
    return {
        "losses": {
            "value": (sums - chosen)[:, 0],
            "magnitude": (flow + chosen.abs())[:, 0],
            "terms": terms,
        },
        "dx": {
            "value": gradient,
            "magnitude": dloss.abs()[:, None] * (chance * (1 + (x - sums).abs() + flow) + wanted),
            "terms": terms,
        },
    }
