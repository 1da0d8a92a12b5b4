"""torchao: layers whose weights alone are quantized, to int8, fp8 and int4."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from envcheck.guest.ops.op import Case, Tensor, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, only
from envcheck.guest.ops.torches import torch
from envcheck.guest.smokes import weights
from envcheck.guest.smokes.smoke import Smoke

_NAME = "torchao"
_GROUP = 128
"""Weights that share a scale of int4."""


def _layer(w: Tensor, config: str, **options: Any) -> Any:
    """Return a linear layer with these weights, quantized by `quantize_`."""
    package = importlib.import_module("torchao.quantization")
    layer = torch().nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=w.dtype, device=w.device)
    layer.weight = torch().nn.Parameter(w.clone(), requires_grad=False)
    # Settings of the compiler are the process's own and no part of a layer.
    made = getattr(package, config)(set_inductor_config=False, **options)
    package.quantize_(layer, made)
    return layer


def _by_scale(config: str) -> weights.Build:
    def build(w: Tensor, case: Case) -> weights.Layer:  # noqa: ARG001 - as every layer
        layer = _layer(w, config)
        return weights.Layer(layer, layer.weight.dequantize())

    return build


def _exact_int8(w: Tensor, case: Case) -> weights.Layer:  # noqa: ARG001 - idem
    """Return the codes times their scales before they are rounded, as the product takes them."""
    layer = _layer(w, "Int8WeightOnlyConfig")
    return weights.Layer(layer, layer.weight.dequantize(torch().float32))


def _int4(w: Tensor, case: Case) -> weights.Layer:  # noqa: ARG001 - idem
    """Return int4 weights as the kernel unpacks them: it says so when it multiplies by ones."""
    layer = _layer(
        w, "Int4WeightOnlyConfig", group_size=_GROUP, int4_packing_format="tile_packed_to_4d"
    )
    ones = torch().eye(w.shape[1], dtype=w.dtype, device=w.device)
    return weights.Layer(layer, layer(ones).mT.contiguous())


def _within_fp8(w: Tensor, case: Case) -> Mapping[str, Any]:  # noqa: ARG001 - as every bound
    """Return one rounding to three bits, which below 2^-6 of the scale is an absolute one."""
    scale = weights.largest(w, w.shape[1]) / 448
    return {
        "magnitude": w.abs(),
        "rounded": w.abs().maximum(scale * 2.0**-6),
        "terms": weights.SCALED,
    }


def _within_int4(w: Tensor, case: Case) -> Mapping[str, Any]:  # noqa: ARG001 - idem
    """Return half a step of a range; scale, offset, code and weight are rounded to bf16.

    Two roundings go into each of the scale and the offset, three into what is divided by the
    scale, and one into the weight that is unpacked, all of them of numbers within this size.
    """
    groups = w.unflatten(-1, (-1, _GROUP))
    top, low = groups.amax(-1, keepdim=True), groups.amin(-1, keepdim=True)
    size = top.abs().maximum(low.abs()) + (top - low)
    spread, sizes = ((t.expand_as(groups).flatten(-2)) for t in (top - low, size))
    return {"magnitude": sizes, "rounded": spread, "terms": 8}


_CASES = (
    Case(sizes=dims(M=33, N=96, K=256)),
    Case(sizes=dims(M=1, N=136, K=512)),
    Case(sizes=dims(M=5, N=64, K=128), pattern="zeros"),
)
_WEIGHTS = (Case(sizes=dims(N=67, K=384)), Case(sizes=dims(N=5, K=128), pattern="zeros"))
_PRODUCTS = only(MATRIX_UNITS, "bf16")


def _product(
    name: str, build: weights.Build, roundings: int = 1, cases: tuple[Case, ...] = _CASES
) -> Any:
    return weights.product(
        name, _NAME, build, dtypes=_PRODUCTS, cases=cases, roundings=roundings, deadline=90
    )


def _quantized(
    name: str,
    build: weights.Build,
    operand: str,
    source: str,
    bound: Callable[[Tensor, Case], Mapping[str, Any]],
    accumulate: str = "fp32",
    cases: tuple[Case, ...] = _WEIGHTS,
) -> Any:
    rules = weights.steps(operand, source, "bf16", accumulate=accumulate)
    return weights.quantized(name, _NAME, build, dtypes=rules, cases=cases, bound=bound)


_INTEGERS = "torchao quantization overview: affine quantization, the nearest code of a scale"
_FP8 = "OCP 8-bit Floating Point Specification, 5.1; one scale for each row"

OPS = (
    # The sum of products is rounded before it is scaled, and so is the scale.
    _product("torchao.int8_weight_only", _exact_int8, roundings=3),
    _quantized(
        "torchao.int8_weights",
        _by_scale("Int8WeightOnlyConfig"),
        "int8-codes",
        _INTEGERS,
        weights.by_row,
    ),
    # Rows of zeros have the scale zero, by which torchao 0.18 divides: they are left out.
    _product("torchao.float8_weight_only", _by_scale("Float8WeightOnlyConfig"), cases=_CASES[:2]),
    _quantized(
        "torchao.float8_weights",
        _by_scale("Float8WeightOnlyConfig"),
        "fp8e4nv",
        _FP8,
        _within_fp8,
        cases=_WEIGHTS[:1],
    ),
    _product("torchao.int4_weight_only", _int4),
    _quantized("torchao.int4_weights", _int4, "int4-codes", _INTEGERS, _within_int4, "bf16"),
)

SMOKE = Smoke(module=_NAME, distributions=("torchao",), ops=OPS, tried=True)
