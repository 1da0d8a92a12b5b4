"""Products of matrices: cuBLAS and cuBLASLt, which choose their kernels by sizes and layout."""

from __future__ import annotations

import importlib
from typing import Any

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import CUT, MATRIX_UNITS

_SIZES = (
    Case(sizes=dims(M=301, N=517, K=1111)),
    Case(sizes=dims(M=257, N=130, K=1026), layout="transposed"),
    Case(sizes=dims(M=65, N=33, K=129), layout="offset"),
    Case(sizes=dims(M=1, N=1, K=1)),
    Case(sizes=dims(M=1, N=1027, K=513)),
    Case(sizes=dims(M=1024, N=1024, K=1024), only=("fp16", "bf16")),
    Case(sizes=dims(M=127, N=255, K=1111), pattern="ones"),
    Case(sizes=dims(M=130, N=259, K=77), pattern="integers"),
    Case(sizes=dims(M=130, N=259, K=77), pattern="zeros"),
    Case(sizes=dims(M=5, N=3, K=0)),
    Case(sizes=dims(M=0, N=3, K=7)),
)


def _torch() -> Any:
    return importlib.import_module("torch")


def _poisoned(like: Tensor, *size: int) -> Tensor:
    """Return a place for an output that holds what nothing computes."""
    return like.new_full(size, float("nan"))


def _draw(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"a": draw.values(m, k), "b": draw.values(k, n)}


def _terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - as every op's
    sizes = case.sizes
    own = sizes["K"] + 2
    return {"out": own, "d_a": sizes["N"], "d_b": sizes["M"], "d_c": sizes.get("M", 1)}


def _product(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": operands["a"] @ operands["b"]}


def _mm(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    a, b = operands["a"], operands["b"]
    if a.requires_grad:
        return {"out": _torch().mm(a, b)}
    return {"out": _torch().mm(a, b, out=_poisoned(a, a.shape[0], b.shape[1]))}


MM = Op(
    name="mm",
    family="matmul",
    dtypes=MATRIX_UNITS,
    cases=_SIZES,
    inputs=_draw,
    call=_mm,
    reference=linear.reference(_product, _terms, ("a", "b")),
    gradients=("a", "b"),
    watched=True,
)


def _draw_addmm(case: Case, draw: Operands) -> Tensors:
    return {**_draw(case, draw), "c": draw.values(case.sizes["N"])}


def _sum(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": operands["c"] + operands["a"] @ operands["b"]}


def _before_the_bias(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    """Return the product: where no kernel adds the bias too, it is stored first."""
    return {"out": (operands["a"] @ operands["b"]).abs()}


def _addmm(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": _torch().addmm(operands["c"], operands["a"], operands["b"])}


ADDMM = Op(
    name="addmm",
    family="matmul",
    dtypes=MATRIX_UNITS,
    cases=(
        Case(sizes=dims(M=301, N=517, K=1111)),
        Case(sizes=dims(M=67, N=129, K=260), layout="transposed"),
        Case(sizes=dims(M=130, N=259, K=77), pattern="integers"),
    ),
    inputs=_draw_addmm,
    call=_addmm,
    reference=linear.reference(_sum, _terms, ("a", "b", "c"), _before_the_bias),
    gradients=("a", "b", "c"),
)


def _draw_bmm(case: Case, draw: Operands) -> Tensors:
    z, m, n, k = (case.sizes[name] for name in "ZMNK")
    return {"a": draw.values(z, m, k), "b": draw.values(z, k, n)}


def _bmm(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    a, b = operands["a"], operands["b"]
    if a.requires_grad:
        return {"out": _torch().bmm(a, b)}
    return {"out": _torch().bmm(a, b, out=_poisoned(a, len(a), a.shape[1], b.shape[2]))}


BMM = Op(
    name="bmm",
    family="matmul",
    dtypes=MATRIX_UNITS,
    cases=(
        Case(sizes=dims(Z=7, M=65, N=131, K=261)),
        Case(sizes=dims(Z=3, M=70, N=33, K=129), layout="strided"),
        Case(sizes=dims(Z=2049, M=3, N=5, K=17)),
        Case(sizes=dims(Z=5, M=31, N=66, K=77), pattern="integers"),
        Case(sizes=dims(Z=0, M=3, N=5, K=7)),
    ),
    inputs=_draw_bmm,
    call=_bmm,
    reference=linear.reference(_product, _terms, ("a", "b")),
    gradients=("a", "b"),
)


def _int_mm(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    a, b = operands["a"], operands["b"]
    torch = _torch()
    out = torch.full((len(a), b.shape[1]), torch.iinfo(torch.int32).min, device=a.device)
    multiply = torch._int_mm  # noqa: SLF001 - it has no public name
    return {"out": multiply(a, b, out=out.to(torch.int32))}


def _whole(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": operands["a"].double() @ operands["b"].double()}


INT_MM = Op(
    name="_int_mm",
    family="matmul",
    dtypes={
        "int8": Dtype(
            min_sm="sm_75",
            tolerance=Tolerance(accumulate="exact", source="integers below 2^31"),
        )
    },
    cases=(
        # cuBLASLt wants K and N to divide by 8, torch more than 16 rows.
        Case(sizes=dims(M=301, N=520, K=1112)),
        Case(sizes=dims(M=17, N=8, K=8)),
        Case(sizes=dims(M=129, N=264, K=1112), pattern="ones"),
    ),
    inputs=_draw,
    call=_int_mm,
    reference=linear.reference(_whole, _terms),
    exact=("random", "ones"),
)


def _draw_scaled(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    scales = {"_scale_a": draw.positive(dtype="fp32"), "_scale_b": draw.positive(dtype="fp32")}
    # cuBLASLt takes the second operand by columns.
    return {"a": draw.values(m, k), "_b": draw.values(n, k).t(), **scales}


def _scaled(operands: Tensors, case: Case) -> Tensors:
    torch = _torch()
    ones = torch.ones((), device=operands["a"].device)
    plain = case.pattern != "random"
    scale_a, scale_b = (ones if plain else operands[n] for n in ("_scale_a", "_scale_b"))
    multiply = torch._scaled_mm  # noqa: SLF001 - idem
    out = multiply(
        operands["a"],
        operands["_b"],
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=torch.bfloat16,
        use_fast_accum=False,
    )
    return {"out": out}


def _scaled_whole(operands: Tensors, case: Case) -> Tensors:
    scale = operands["_scale_a"] * operands["_scale_b"] if case.pattern == "random" else 1
    return {"out": operands["a"] @ operands["_b"] * scale}


SCALED_MM = Op(
    name="_scaled_mm",
    family="matmul",
    dtypes={
        "fp8e4nv": Dtype(
            min_sm="sm_89",
            tolerance=Tolerance(
                accumulate="fp22-truncated",
                source=CUT + ", with the accumulators of SageAttention2, section 3.2",
            ),
        )
    },
    cases=(
        # K and N must divide by 16.
        Case(sizes=dims(M=301, N=528, K=1104)),
        Case(sizes=dims(M=1, N=16, K=16)),
        Case(sizes=dims(M=129, N=272, K=1104), pattern="ones"),
        Case(sizes=dims(M=33, N=64, K=80), pattern="integers"),
    ),
    inputs=_draw_scaled,
    call=_scaled,
    reference=linear.reference(_scaled_whole, _terms),
    watched=True,
)

OPS = (MM, ADDMM, BMM, INT_MM, SCALED_MM)
