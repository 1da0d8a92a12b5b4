"""bitsandbytes: products with 8-bit and 4-bit weights, and a step of an 8-bit optimizer."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.core.kernels import Dtype, Tolerance
from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import CUT
from envcheck.guest.smokes import adam, weights
from envcheck.guest.smokes.smoke import Smoke

_NAME = "bitsandbytes"
_BLOCK = 64
"""Weights that share a scale, unless another number is asked for (`quantize_4bit`)."""
_STATES = 256
"""Numbers of an optimizer's state that share a scale (`Optimizer2State.init_state`)."""


def _package() -> Any:
    return importlib.import_module(_NAME)


def _functions() -> Any:
    return _package().functional


def _four_bits(w: Tensor, case: Case) -> weights.Layer:  # noqa: ARG001 - as every layer
    codes, state = _functions().quantize_4bit(w, blocksize=_BLOCK, quant_type="nf4")
    multiply = _package().matmul_4bit
    return weights.Layer(
        lambda x: multiply(x, codes.t(), quant_state=state),
        _functions().dequantize_4bit(codes, state),
    )


def _by_block(w: Tensor, case: Case) -> Mapping[str, Any]:  # noqa: ARG001 - idem
    return {"magnitude": w.abs(), "rounded": weights.largest(w, _BLOCK), "terms": weights.SCALED}


_HALF = {
    name: Dtype(
        min_sm="sm_80" if name == "bf16" else "sm_75",
        tolerance=Tolerance(
            accumulate="fp32-truncated",
            operand=name,
            source=CUT + "; weights and single products rounded to the operands' type",
        ),
    )
    for name in ("fp16", "bf16")
}
_LAYERS = (
    Case(sizes=dims(M=33, N=96, K=256)),
    Case(sizes=dims(M=1, N=130, K=512)),  # a kernel of its own for one row
    Case(sizes=dims(M=5, N=64, K=128), pattern="zeros"),
)
NF4 = weights.product(
    "bitsandbytes.matmul_4bit",
    _NAME,
    _four_bits,
    dtypes=_HALF,
    cases=_LAYERS,
    rounded=2,
    gradients=("x",),
)
NF4_WEIGHTS = weights.quantized(
    "bitsandbytes.quantize_4bit",
    _NAME,
    _four_bits,
    dtypes=weights.steps("nf4-codes", "QLoRA, arXiv 2305.14314, appendix E", "fp16", "bf16"),
    cases=(Case(sizes=dims(N=67, K=320)), Case(sizes=dims(N=5, K=64), pattern="zeros")),
    bound=_by_block,
)


def _restored(x: Tensor) -> Tensor:
    codes, scales, _ = _functions().int8_vectorwise_quant(x)
    return codes.float() * (scales / weights.WIDTH)[:, None]


def _eight_bits(w: Tensor, case: Case) -> weights.Layer:  # noqa: ARG001 - idem
    def apply(x: Tensor) -> Tensor:
        package = _package()
        return package.matmul(x, w, state=package.MatmulLtState())

    return weights.Layer(apply, _restored(w))


def _draw_int8(case: Case, draw: Operands) -> Tensors:
    x = draw.values(case.sizes["M"], case.sizes["K"])
    w = draw.values(case.sizes["N"], case.sizes["K"])
    return {"x": x, "_w": w, "_x": _restored(x), "_weights": _restored(w)}


def _int8(operands: Tensors, case: Case) -> Tensors:
    return {"out": _eight_bits(operands["_w"], case).apply(operands["x"])}


def _codes_multiplied(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    # Activations become codes too; a gradient flows as if they had not.
    x = operands["x"] + (operands["_x"] - operands["x"]).detach()
    return {"out": x @ operands["_weights"].mT}


def _int8_terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
    # Codes are summed up exactly and then scaled; their scales are rounded four times.
    return {"out": 8, "d_x": case.sizes["N"]}


def _int8_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return the product of the codes; for its gradient weights take the operands' type."""
    found = linear.reference(_codes_multiplied, _int8_terms, ("x",))(operands, case)
    return {**found, "out": {**found["out"], "rounded": 0 * found["out"]["value"]}}


INT8 = Op(
    name="bitsandbytes.matmul",
    family=_NAME,
    dtypes={"fp16": _HALF["fp16"]},
    cases=(
        Case(sizes=dims(M=33, N=96, K=256)),
        Case(sizes=dims(M=1, N=136, K=512)),
        Case(sizes=dims(M=5, N=64, K=128), pattern="zeros"),
    ),
    inputs=_draw_int8,
    call=_int8,
    reference=_int8_whole,
    gradients=("x",),
    exact=("zeros",),
    watched=True,
)
INT8_WEIGHTS = weights.quantized(
    "bitsandbytes.int8_vectorwise_quant",
    _NAME,
    _eight_bits,
    dtypes=weights.steps("int8-codes", "LLM.int8(), arXiv 2208.07339, section 2.1", "fp16"),
    cases=(Case(sizes=dims(N=67, K=320)), Case(sizes=dims(N=5, K=64), pattern="zeros")),
    bound=weights.by_row,
)


def _stepped(operands: Tensors, steps: int) -> dict[str, Tensor]:
    """Take so many steps; return the parameter and the moments as the optimizer keeps them."""
    parameter = operands["p"].clone().requires_grad_()
    optimizer = _package().optim.Adam8bit(
        [parameter],
        lr=adam.RATE,
        betas=(adam.FIRST, adam.SECOND),
        eps=adam.EPSILON,
        weight_decay=0.0,
    )
    for gradient in operands["gradients"][:steps]:
        parameter.grad = gradient.clone()
        optimizer.step()
    state = optimizer.state[parameter]
    moments = {
        name: _functions().dequantize_blockwise(
            state[f"state{n}"],
            absmax=state[f"absmax{n}"],
            code=state[f"qmap{n}"],
            blocksize=_STATES,
        )
        for n, name in ((1, "first"), (2, "second"))
    }
    return {"p": parameter.detach(), **moments}


def _draw_step(case: Case, draw: Operands) -> Tensors:
    operands = adam.draw(case, draw)
    moments = _stepped(operands, 1)
    return {**operands, "_first": moments["first"], "_second": moments["second"]}


def _adam(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"p": _stepped(operands, 2)["p"], "first": _stepped(operands, 1)["first"]}


def _adam_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    """Return two steps; between them the moments are what is left of them in eight bits."""
    p, gradients = operands["p"], operands["gradients"]
    size, nothing = p.abs(), 0 * p
    p, first, _, moved = adam.step(p, nothing, nothing, gradients[0], 1, decay=0.0)
    size = size + moved
    p, _, _, moved = adam.step(
        p, operands["_first"], operands["_second"], gradients[1], 2, decay=0.0
    )
    room = (0, -len(first) % _STATES)
    whole = importlib.import_module("torch").nn.functional.pad(first, room)
    largest = weights.largest(whole, _STATES)[: len(first)]
    exact = 0 * first
    return {
        "p": {"value": p, "magnitude": size + moved, "terms": 2 * adam.TERMS, "rounded": exact},
        "first": {"value": first, "magnitude": first.abs(), "terms": 8, "rounded": largest},
    }


ADAM = Op(
    name="bitsandbytes.Adam8bit",
    family=_NAME,
    dtypes=weights.steps(
        "dynamic8-codes",
        "8-bit optimizers, arXiv 2110.02861, section 2: block by block; Higham 3.1 for a step",
        "fp32",
    ),
    cases=(Case(sizes=dims(N=10_007)), Case(sizes=dims(N=4096), pattern="zeros")),
    inputs=_draw_step,
    call=_adam,
    reference=_adam_whole,
    exact=("zeros",),
    watched=True,
)

SMOKE = Smoke(
    module=_NAME,
    distributions=("bitsandbytes",),
    ops=(INT8, INT8_WEIGHTS, NF4, NF4_WEIGHTS, ADAM),
    tried=True,
)
