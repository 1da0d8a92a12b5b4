"""JAX: a product that XLA compiles, and its gradients, on the card that JAX names."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, only
from envcheck.guest.ops.torches import claim, held, torch
from envcheck.guest.smokes.smoke import Smoke

_NAME = "jax"


def _package() -> Any:
    # Most of the card's memory is not JAX's to keep: torch's tensors lie beside.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return importlib.import_module(_NAME)


def _there(tensor: Tensor) -> Any:
    return _package().dlpack.from_dlpack(tensor.contiguous())


def _back(array: Any) -> Tensor:
    return torch().from_dlpack(array.block_until_ready()).clone()


def _draw(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"a": draw.values(m, k), "b": draw.values(k, n), "g": draw.values(m, n)}


@cache
def _compiled(*signatures: Any) -> Any:
    """Compile a product and its gradients for operands of these shapes and dtypes."""
    jax = _package()
    single = jax.lax.Precision.HIGHEST  # without it XLA shortens fp32 to tf32

    def product(a: Any, b: Any) -> Any:
        return jax.numpy.matmul(a, b, precision=single)

    def all_of_it(a: Any, b: Any, g: Any) -> Any:
        out, back = jax.vjp(product, a, b)
        return (out, *back(g))

    lowered = jax.jit(all_of_it).lower(*(jax.ShapeDtypeStruct(*each) for each in signatures))
    try:  # not to try out each algorithm that there is, for seconds
        return lowered.compile(compiler_options={"xla_gpu_autotune_level": 0})
    except Exception:  # noqa: BLE001 - a release that does not know the name compiles without it
        return lowered.compile()


def _differentiated(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    if operands["a"].device.type == "cuda":
        torch().cuda.synchronize()  # XLA has streams of its own
    arrays = [_there(operands[name]) for name in "abg"]
    out, d_a, d_b = _compiled(*((x.shape, x.dtype) for x in arrays))(*arrays)
    (device,) = out.devices()
    right = device.platform == {"cuda": "gpu"}.get(operands["a"].device.type, "cpu")
    return {
        "out": _back(out),
        "d_a": _back(d_a),
        "d_b": _back(d_b),
        "JAX computes where the operands are": claim(right, operands["a"]),
    }


def _plain(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    a, b, g = (operands[name] for name in "abg")
    return {"out": a @ b, "d_a": g @ b.mT, "d_b": a.mT @ g}


def _terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"out": k + 2, "d_a": n + 2, "d_b": m + 2}


def _whole(operands: Tensors, case: Case) -> Mapping[str, Any]:
    found = linear.reference(_plain, _terms)(operands, case)
    return {**found, "JAX computes where the operands are": held()}


PRODUCT = Op(
    name="jax.vjp",
    family=_NAME,
    dtypes=only(MATRIX_UNITS, "fp32", "bf16"),
    cases=(
        Case(sizes=dims(M=67, N=129, K=260)),
        Case(sizes=dims(M=33, N=65, K=77), pattern="integers"),
    ),
    inputs=_draw,
    call=_differentiated,
    reference=_whole,
    watched=True,
    deadline=120,
)

_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")

SMOKE = Smoke(
    module=_NAME,
    distributions=("jax", "jaxlib", *_PLUGINS),
    on_card=_PLUGINS,
    ops=(PRODUCT,),
    tried=True,
)
