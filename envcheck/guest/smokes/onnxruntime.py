"""ONNX Runtime: a small model on the card, with no other place to fall back to."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, only
from envcheck.guest.ops.torches import claim, held, torch
from envcheck.guest.smokes.onnx_model import product_of
from envcheck.guest.smokes.smoke import Smoke

_NAME = "onnxruntime"
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}


def _session(model: bytes, place: str) -> Any:
    package = importlib.import_module(_NAME)
    options, provider = package.SessionOptions(), _PROVIDERS[place]
    given: dict[str, str] = {}
    if place == "cuda":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        given = {"use_tf32": "0"}
        if hasattr(package, "preload_dlls"):  # finds the libraries of CUDA that torch brought
            package.preload_dlls()
    return package.InferenceSession(model, options, providers=[(provider, given)])


def _draw(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"a": draw.values(m, k), "b": draw.values(k, n)}


def _run(operands: Tensors, case: Case) -> Tensors:
    single = importlib.import_module("numpy").float32
    a, b = operands["a"].contiguous(), operands["b"].contiguous()
    m, n, k = (case.sizes[name] for name in "MNK")
    out, place = torch().full((m, n), float("nan"), device=a.device), a.device.type
    session = _session(product_of(m, n, k), place)
    binding = session.io_binding()
    for name, tensor in (("a", a), ("b", b)):
        binding.bind_input(name, place, 0, single, tuple(tensor.shape), tensor.data_ptr())
    binding.bind_output("out", place, 0, single, (m, n), out.data_ptr())
    if place == "cuda":
        torch().cuda.synchronize()  # the runtime has a stream of its own
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    first = session.get_providers()[0]
    return {"out": out, "the card's provider runs it": claim(first == _PROVIDERS[place], a)}


def _product(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": operands["a"] @ operands["b"]}


def _terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
    return {"out": case.sizes["K"] + 2}


def _whole(operands: Tensors, case: Case) -> Mapping[str, Any]:
    out = linear.reference(_product, _terms)(operands, case)["out"]
    # What is negative becomes zero, which makes no error larger.
    clipped = {**out, "value": out["value"].clamp(min=0)}
    return {"out": clipped, "the card's provider runs it": held()}


MODEL = Op(
    name="onnxruntime.InferenceSession",
    family=_NAME,
    dtypes=only(MATRIX_UNITS, "fp32"),
    cases=(
        Case(sizes=dims(M=67, N=129, K=260)),
        Case(sizes=dims(M=33, N=65, K=77), pattern="integers"),
    ),
    inputs=_draw,
    call=_run,
    reference=_whole,
    watched=True,
    deadline=60,
)

_BUILDS = ("onnxruntime-gpu", "ort-nightly-gpu")

SMOKE = Smoke(module=_NAME, distributions=_BUILDS, on_card=_BUILDS, ops=(MODEL,), tried=True)
