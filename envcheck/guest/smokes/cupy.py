"""CuPy: a kernel that NVRTC compiles, a product by cuBLAS, and a sort by Thrust or CUB."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, alone, only
from envcheck.guest.ops.torches import moved, torch
from envcheck.guest.smokes.smoke import Smoke

_NAME = "cupy"
_SOURCE = """\
extern "C" __global__ void scaled_sum(const float* x, const float* y, float* out, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = 2.0f * x[at] + y[at];
}
"""
_THREADS = 128


def _package() -> Any:
    return importlib.import_module(_NAME)


def _there(tensor: Tensor) -> Any:
    return _package().from_dlpack(tensor.contiguous())


def _back(array: Any) -> Tensor:
    return torch().from_dlpack(array).clone()


def _draw_rows(case: Case, draw: Operands) -> Tensors:
    return {"x": draw.values(case.sizes["N"]), "y": draw.values(case.sizes["N"])}


def _compiled(operands: Tensors, case: Case) -> Tensors:
    count, package = case.sizes["N"], _package()
    out = torch().full_like(operands["x"], float("nan"))
    kernel = package.RawKernel(_SOURCE, "scaled_sum")
    arguments = (*(_there(t) for t in (operands["x"], operands["y"], out)), package.int32(count))
    with package.cuda.ExternalStream(torch().cuda.current_stream().cuda_stream):
        kernel((-(-count // _THREADS),), (_THREADS,), arguments)
    return {"out": out}


def _summed(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": 2 * operands["x"] + operands["y"]}


def _few(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
    return {"out": 2}


def _draw(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"a": draw.values(m, k), "b": draw.values(k, n)}


def _multiply(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    with _package().cuda.ExternalStream(torch().cuda.current_stream().cuda_stream):
        return {"out": _back(_there(operands["a"]) @ _there(operands["b"]))}


def _product(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": operands["a"] @ operands["b"]}


def _terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
    return {"out": case.sizes["K"] + 2}


def _sort(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    with _package().cuda.ExternalStream(torch().cuda.current_stream().cuda_stream):
        return {"out": _back(_package().sort(_there(operands["x"])))}


def _sorted(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": operands["x"].sort().values}


_ROWS = (Case(sizes=dims(N=10_007)), Case(sizes=dims(N=1)), Case(sizes=dims(N=131), pattern="ones"))

OPS = (
    Op(
        name="cupy.RawKernel",
        family=_NAME,
        dtypes=alone("Higham 3.1: a product and a sum"),
        cases=_ROWS,
        inputs=_draw_rows,
        call=_compiled,
        reference=linear.reference(_summed, _few),
        watched=True,
        deadline=60,
    ),
    Op(
        name="cupy.matmul",
        family=_NAME,
        dtypes=only(MATRIX_UNITS, "fp32", "fp16"),
        cases=(
            Case(sizes=dims(M=67, N=129, K=260)),
            Case(sizes=dims(M=33, N=65, K=77), pattern="integers"),
        ),
        inputs=_draw,
        call=_multiply,
        reference=linear.reference(_product, _terms),
        watched=True,
        deadline=60,
    ),
    Op(
        name="cupy.sort",
        family=_NAME,
        dtypes=alone("nothing is computed, so nothing is rounded"),
        cases=_ROWS,
        inputs=_draw_rows,
        call=_sort,
        reference=moved(_sorted),
        watched=True,
        deadline=60,
    ),
)

SMOKE = Smoke(
    module=_NAME,
    distributions=("cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "cupy"),
    ops=OPS,
    tried=True,
)
