"""What other libraries of CUDA compute: cuFFT, cuSPARSE, cuRAND."""

from __future__ import annotations

import math
from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Expected, Op, Tensors, dims
from envcheck.guest.ops.rules import SUMS, alone
from envcheck.guest.ops.torches import claim, held, torch

_SIX_SIGMA = 6.0
"""A mean lies farther from what it tends to in 2 of a thousand million samples."""


def _draw_signal(case: Case, draw: Operands) -> Tensors:
    return {"x": draw.values(case.sizes["M"], case.sizes["N"])}


def _fft(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    fft, x = torch().fft, operands["x"]
    real = torch().view_as_real
    whole = fft.rfft(x)
    return {
        "rfft": real(whole),
        "fft": real(fft.fft(torch().complex(x, x.flip(1)))),
        "fft2": real(fft.rfft2(x)),
        "there and back": fft.irfft(whole, n=x.shape[1]),
    }


def _fft_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return transforms: no element of one is more than the sum of all sizes.

    A step of radix 2 makes an error of 7 units at most; a length that is not a product of
    small primes takes three transforms of up to four times the length.
    """
    x, (rows, columns) = operands["x"], (case.sizes["M"], case.sizes["N"])
    sums = {
        "rfft": (x.abs().sum(1)[:, None, None], columns),
        "fft": (2 * x.abs().sum(1)[:, None, None], columns),
        "fft2": (x.abs().sum(), rows * columns),
        "there and back": (x.abs().sum(1, keepdim=True), columns),
    }
    values = _fft(operands, case)
    return {
        name: {
            "value": values[name],
            "magnitude": magnitude.expand(values[name].shape),
            "terms": 2 * 3 * 7 * math.ceil(2 + math.log2(length)),
        }
        for name, (magnitude, length) in sums.items()
    }


FFT = Op(
    name="fft",
    family="libraries",
    dtypes=alone("Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 24.2"),
    cases=(
        Case(sizes=dims(M=7, N=1024)),
        Case(sizes=dims(M=3, N=1021)),
        Case(sizes=dims(M=30, N=77), layout="transposed"),
        Case(sizes=dims(M=7, N=1024), pattern="ones"),
        Case(sizes=dims(M=7, N=1024), pattern="zeros"),
    ),
    inputs=_draw_signal,
    call=_fft,
    reference=_fft_whole,
    exact=(),
)


def _draw_sparse(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    a = draw.values(m, k) * (draw.positive(m, k) < 1 / 16)
    return {"_a": a, "b": draw.values(k, n)}


def _sparse(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    a, b = operands["_a"], operands["b"]
    return {
        "csr": a.to_sparse_csr() @ b,
        "coo": torch().sparse.mm(a.to_sparse(), b),
        "and back": a.to_sparse_csr().to_dense(),
    }


def _dense(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    product = operands["_a"] @ operands["b"]
    return {"csr": product, "coo": product, "and back": operands["_a"]}


def _sparse_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    return {"csr": case.sizes["K"], "coo": case.sizes["K"], "and back": 0}


SPARSE = Op(
    name="sparse",
    family="libraries",
    dtypes=alone(SUMS),
    cases=(
        Case(sizes=dims(M=301, N=67, K=513)),
        Case(sizes=dims(M=1, N=1, K=17)),
        Case(sizes=dims(M=65, N=33, K=129), pattern="integers"),
    ),
    inputs=_draw_sparse,
    call=_sparse,
    reference=linear.reference(_dense, _sparse_terms),
    atomics=("forward",),
)


def _random(operands: Tensors, case: Case) -> Tensors:
    here, size = operands["_here"], case.sizes["N"]
    generator = torch().Generator(device=here.device).manual_seed(case.sizes["SEED"])
    options = {"generator": generator, "device": here.device}
    even, normal = torch().rand(size, **options), torch().randn(size, **options)
    order = torch().randperm(size, **options)
    apart = _SIX_SIGMA / math.sqrt(size)
    return {
        "rand": even,
        "randn": normal,
        "rand is within [0, 1)": claim((even >= 0).all() & (even < 1).all(), even),
        "mean of rand": claim((even.mean() - 0.5).abs() < apart / math.sqrt(12), even),
        "mean of randn": claim(normal.mean().abs() < apart, normal),
        "mean square of randn": claim(
            (normal.square().mean() - 1).abs() < apart * math.sqrt(2), normal
        ),
        "randperm": order.sort().values,
    }


def _random_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    claims = ("rand is within [0, 1)", "mean of rand", "mean of randn", "mean square of randn")
    order = torch().arange(case.sizes["N"]).double()
    return {
        "rand": {},
        "randn": {},
        "randperm": {"value": order, "exact": True},
        **{name: held() for name in claims},
    }


RANDOM = Op(
    name="random",
    family="libraries",
    dtypes=alone("central limit theorem, six standard deviations of the mean"),
    cases=(Case(sizes=dims(N=100_003, SEED=1)), Case(sizes=dims(N=1_000_003, SEED=77))),
    inputs=lambda case, draw: {"_here": draw.values(1)},  # noqa: ARG005 - idem
    call=_random,
    reference=_random_whole,
)

OPS = (FFT, SPARSE, RANDOM)
