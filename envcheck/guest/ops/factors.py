"""Factors of matrices, by cuSOLVER.

A decomposition is not compared with another one: factors of a matrix differ far more than
the matrices that they make. What is compared is their product, taken in float64.
"""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import alone
from envcheck.guest.ops.torches import torch


def _draw_square(case: Case, draw: Operands) -> Tensors:
    size = case.sizes["N"]
    a = draw.values(size, size)
    lift = size * torch().eye(size, device=a.device)
    return {
        "a": a,
        "_positive": a @ a.T + lift,
        "_even": a + a.T,
        "b": draw.values(size, 3),
    }


def _solve(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    a, positive, even, b = (operands[n] for n in ("a", "_positive", "_even", "b"))
    linalg = torch().linalg
    lower, (q, r) = linalg.cholesky(positive), linalg.qr(a)
    x = linalg.solve(a, b)
    values, vectors = linalg.eigh(even)
    u, s, v = linalg.svd(a)
    l64, q64, r64, u64, v64 = (t.double() for t in (lower, q, r, u, v))
    return {
        "cholesky": l64 @ l64.T,
        "qr": q64 @ r64,
        "q is orthogonal": q64.T @ q64,
        "solve": a.double() @ x.double(),
        "eigh": vectors.double() * values.double() @ vectors.double().T,
        "eigenvalues": values,
        "svd": u64 * s.double() @ v64,
        "singular values": s,
        "below": lower,
        "x": x,
    }


def _solve_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return what the factors make; a norm stands for every element where theory gives one.

    Higham: Cholesky 10.3, QR 19.4, LU 9.4; eigenvalues and singular values have an error
    within a modest polynomial of the size times the norm (LAPACK Users' Guide, 4.7 and 4.9).
    """
    a, positive, even, b = (operands[n] for n in ("a", "_positive", "_even", "b"))
    size, linalg = case.sizes["N"], torch().linalg
    lower = linalg.cholesky(positive)
    whole = torch().ones_like(a)
    columns = a.norm(dim=0) * whole
    permutation, low, up = linalg.lu(a)
    flow = permutation @ (low.abs() @ up.abs()) @ linalg.solve(a, b).abs()
    norms = {m: linalg.matrix_norm(t, 2) for m, t in (("a", a), ("even", even))}

    def expect(value: Tensor, magnitude: Tensor, terms: int) -> Expected:
        return {"value": value, "magnitude": magnitude, "terms": terms}

    return {
        "cholesky": expect(positive, lower.abs() @ lower.abs().T, size + 1),
        "qr": expect(a, columns, size * size),
        "q is orthogonal": expect(torch().eye(size).double(), whole, size * size * 2),
        "solve": expect(b, flow + b.abs(), 3 * size),
        "eigh": expect(even, norms["even"] * whole, size * size),
        "eigenvalues": expect(linalg.eigvalsh(even), norms["even"] * whole[0], size * size),
        "svd": expect(a, norms["a"] * whole, size * size),
        "singular values": expect(linalg.svdvals(a), norms["a"] * whole[0], size * size),
        "below": {},
        "x": {},
    }


LINALG = Op(
    name="linalg",
    family="libraries",
    dtypes=alone("Higham, theorems 9.4, 10.3 and 19.4; LAPACK Users' Guide, 4.7 and 4.9"),
    cases=(Case(sizes=dims(N=129)), Case(sizes=dims(N=33), layout="transposed")),
    inputs=_draw_square,
    call=_solve,
    reference=_solve_whole,
    exact=(),
    deadline=60,
)

OPS = (LINALG,)
