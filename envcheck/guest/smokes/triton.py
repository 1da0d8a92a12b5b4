"""Triton: a product of matrices by a kernel that is compiled on the spot."""

from __future__ import annotations

import importlib
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, only
from envcheck.guest.ops.torches import torch
from envcheck.guest.smokes.smoke import Smoke

_BLOCK = 32
tl: Any = None
"""The kernel finds triton.language here: Triton looks names up in the kernel's module."""


def _kernel() -> Any:
    """Return the kernel; Triton is imported when it is asked for."""
    triton = importlib.import_module("triton")
    globals()["tl"] = importlib.import_module("triton.language")

    # ruff: noqa: ANN001, N803 - Triton's values; constants of the compiler are in capitals
    def product(a, b, out, M, N, K, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
        """Compute one block of the product of a (M, K) and b (K, N)."""
        rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(0, K, BLOCK):
            inner = start + tl.arange(0, BLOCK)
            inside = (rows[:, None] < M) & (inner[None, :] < K)
            left = tl.load(a + rows[:, None] * K + inner[None, :], mask=inside, other=0.0)
            inside = (inner[:, None] < K) & (columns[None, :] < N)
            right = tl.load(b + inner[:, None] * N + columns[None, :], mask=inside, other=0.0)
            total += tl.dot(left, right, input_precision="ieee")
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        place = out + rows[:, None] * N + columns[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=inside)

    return triton.jit(product)


def _draw(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"a": draw.values(m, k), "b": draw.values(k, n)}


def _multiply(operands: Tensors, case: Case) -> Tensors:
    a, b = operands["a"], operands["b"]
    m, n, k = (case.sizes[name] for name in "MNK")
    out = torch().full((m, n), float("nan"), dtype=a.dtype, device=a.device)
    grid = (-(-m // _BLOCK), -(-n // _BLOCK))
    _kernel()[grid](a, b, out, m, n, k, BLOCK=_BLOCK)
    return {"out": out}


def _product(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": operands["a"] @ operands["b"]}


def _terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    return {"out": case.sizes["K"] + 2}


PRODUCT = Op(
    name="triton.dot",
    family="triton",
    dtypes=only(MATRIX_UNITS, "bf16", "fp16", "fp32"),
    cases=(
        Case(sizes=dims(M=67, N=129, K=260)),
        Case(sizes=dims(M=33, N=65, K=77), pattern="integers"),
        Case(sizes=dims(M=33, N=65, K=301), pattern="ones"),
    ),
    inputs=_draw,
    call=_multiply,
    reference=linear.reference(_product, _terms),
    watched=True,
    deadline=60,
)

SMOKE = Smoke(module="triton", distributions=("triton",), ops=(PRODUCT,), tried=True)
