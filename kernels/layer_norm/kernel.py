"""y = (x - mean) / sqrt(var + eps) * w + b along rows, and its gradients for x, w and b."""

# ruff: noqa: ANN001, ANN201, ANN202, INP001, N803, N806 - a folder loaded by path, whose
# functions take Triton's values; compile-time constants are in capitals

from __future__ import annotations

import triton
import triton.language as tl

EPSILON = 1e-5


@triton.jit
def forward_kernel(x, w, b, y, means, rstds, N, epsilon, BLOCK: tl.constexpr):
    """Normalise one row, its variance in a second pass."""
    row = tl.program_id(0)
    x += row.to(tl.int64) * N
    y += row.to(tl.int64) * N
    columns = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + columns
        sums += tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
    mean = tl.sum(sums, 0) / N
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + columns
        part = tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
        centred = tl.where(at < N, part - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, 0) / N + epsilon)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)
    for start in range(0, N, BLOCK):
        at = start + columns
        part = tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
        scale = tl.load(w + at, mask=at < N, other=0.0).to(tl.float32)
        shift = tl.load(b + at, mask=at < N, other=0.0).to(tl.float32)
        result = (part - mean) * rstd * scale + shift
        tl.store(y + at, result.to(y.dtype.element_ty), mask=at < N)


@triton.jit
def backward_input_kernel(x, w, dy, dx, means, rstds, N, BLOCK: tl.constexpr):
    """Compute the gradient for one row of x."""
    row = tl.program_id(0)
    x += row.to(tl.int64) * N
    dy += row.to(tl.int64) * N
    dx += row.to(tl.int64) * N
    columns = tl.arange(0, BLOCK)
    mean = tl.load(means + row)
    rstd = tl.load(rstds + row)
    plain = tl.zeros((BLOCK,), tl.float32)
    weighted = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        at = start + columns
        part = tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
        gradient = tl.load(dy + at, mask=at < N, other=0.0).to(tl.float32)
        gradient *= tl.load(w + at, mask=at < N, other=0.0).to(tl.float32)
        plain += gradient
        weighted += gradient * (part - mean) * rstd
    mean_plain = tl.sum(plain, 0) / N
    mean_weighted = tl.sum(weighted, 0) / N
    for start in range(0, N, BLOCK):
        at = start + columns
        part = tl.load(x + at, mask=at < N, other=0.0).to(tl.float32)
        gradient = tl.load(dy + at, mask=at < N, other=0.0).to(tl.float32)
        gradient *= tl.load(w + at, mask=at < N, other=0.0).to(tl.float32)
        result = (gradient - mean_plain - (part - mean) * rstd * mean_weighted) * rstd
        tl.store(dx + at, result.to(dx.dtype.element_ty), mask=at < N)


@triton.jit
def backward_weight_kernel(
    x, dy, dw, db, means, rstds, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Sum the gradients for some columns of w and b over all rows."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    scales = tl.zeros((ROWS, COLUMNS), tl.float32)
    shifts = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, M, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        at = rows[:, None].to(tl.int64) * N + columns[None, :]
        part = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(means + rows, mask=rows < M, other=0.0)
        rstd = tl.load(rstds + rows, mask=rows < M, other=0.0)
        scales += gradient * (part - mean[:, None]) * rstd[:, None]
        shifts += gradient
    tl.store(dw + columns, tl.sum(scales, 0), mask=columns < N)
    tl.store(db + columns, tl.sum(shifts, 0), mask=columns < N)


def compilations(dtype, config):
    """Return what the compiler is given for each function that `launch` starts."""
    data, full = f"*{dtype}", "*fp32"
    rows = {"means": full, "rstds": full}
    return [
        {
            "fn": forward_kernel,
            "signature": {
                "x": data,
                "w": data,
                "b": data,
                "y": data,
                **rows,
                "N": "i32",
                "epsilon": "fp32",
            },
            "constexprs": {"BLOCK": config["BLOCK"]},
            "divisible": ("x", "w", "b", "y", "means", "rstds", "N"),
        },
        {
            "fn": backward_input_kernel,
            "signature": {"x": data, "w": data, "dy": data, "dx": data, **rows, "N": "i32"},
            "constexprs": {"BLOCK": config["BLOCK"]},
            "divisible": ("x", "w", "dy", "dx", "means", "rstds", "N"),
        },
        {
            "fn": backward_weight_kernel,
            "signature": {
                "x": data,
                "dy": data,
                "dw": full,
                "db": full,
                **rows,
                "M": "i32",
                "N": "i32",
            },
            "constexprs": {"ROWS": config["ROWS"], "COLUMNS": config["COLUMNS"]},
            "divisible": ("x", "dy", "dw", "db", "means", "rstds", "M", "N"),
        },
    ]


def inputs(shape, config, draw):  # noqa: ARG001 - the same for every kernel
    """Return the operands of one launch."""
    rows, columns = shape["M"], shape["N"]
    return {
        "x": draw.values(rows, columns),
        "w": draw.values(columns),
        "b": draw.values(columns),
        "dy": draw.values(rows, columns),
    }


def launch(operands, config):
    """Run the kernels; outputs start as values that nothing computes."""
    import torch

    x, w, b, dy = (operands[name] for name in ("x", "w", "b", "dy"))
    rows, columns = x.shape
    y, dx = torch.full_like(x, float("nan")), torch.full_like(x, float("nan"))
    means, rstds = torch.full((2, rows), float("nan"), dtype=torch.float32, device=x.device)
    dw, db = torch.full((2, columns), float("nan"), dtype=torch.float32, device=x.device)
    options = {"num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    block, tile = config["BLOCK"], {"ROWS": config["ROWS"], "COLUMNS": config["COLUMNS"]}
    forward_kernel[(rows,)](x, w, b, y, means, rstds, columns, EPSILON, BLOCK=block, **options)
    backward_input_kernel[(rows,)](x, w, dy, dx, means, rstds, columns, BLOCK=block, **options)
    backward_weight_kernel[(triton.cdiv(columns, tile["COLUMNS"]),)](
        x, dy, dw, db, means, rstds, rows, columns, **tile, **options
    )
    return {"y": y, "dx": dx, "dw": dw, "db": db}


def reference(operands, config):  # noqa: ARG001 - idem
    """Return the same in float64, with what a tolerance needs to know.

    The mean carries a relative error of |x|, so x - mean carries one of |x| + mean |x|, which
    is what counts in a row that hardly varies; `flow` is that for the normalised row, the
    error of the variance included.
    """
    import torch

    x, w, b, dy = (operands[name].cpu().double() for name in ("x", "w", "b", "dy"))
    rows, columns = x.shape
    mean = x.mean(1, keepdim=True)
    rstd = 1 / torch.sqrt(x.var(1, keepdim=True, correction=0) + EPSILON)
    normal = (x - mean) * rstd
    size = x.abs() + x.abs().mean(1, keepdim=True)
    spread = 1 + rstd * size.square().mean(1, keepdim=True).sqrt()
    flow = rstd * size + normal.abs() * spread
    pull = dy * w
    plain, weighted = pull.mean(1, keepdim=True), (pull * normal).mean(1, keepdim=True)
    pulls = pull.abs().mean(1, keepdim=True)
    flow_weighted = (pull.abs() * flow).mean(1, keepdim=True)
    in_row = pull.abs() + pulls + flow * (pull * normal).abs().mean(1, keepdim=True)
    terms = columns + 16
    return {
        "y": {
            "value": normal * w + b,
            "magnitude": flow * w.abs() + b.abs(),
            "terms": terms,
        },
        "dx": {
            "value": (pull - plain - normal * weighted) * rstd,
            "magnitude": rstd * spread * (in_row + normal.abs() * flow_weighted),
            "terms": terms,
        },
        "dw": {
            "value": (dy * normal).sum(0),
            "magnitude": (dy.abs() * flow).sum(0),
            "terms": max(rows, columns) + 16,
        },
        "db": {"value": dy.sum(0), "magnitude": dy.abs().sum(0), "terms": rows + 16},
    }
