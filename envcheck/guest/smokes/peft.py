"""PEFT: a linear layer with a LoRA adapter, forward and backward."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import alone
from envcheck.guest.ops.torches import torch
from envcheck.guest.smokes.smoke import Smoke

_NAME = "peft"
_ALPHA = 16
"""The adapter is scaled by this over its rank."""
_OPERANDS = ("x", "w", "a", "b")


def _draw(case: Case, draw: Operands) -> Tensors:
    m, n, k, rank = (case.sizes[name] for name in ("M", "N", "K", "RANK"))
    return {
        "x": draw.values(m, k),
        "w": draw.values(n, k),
        "a": draw.values(rank, k),
        "b": draw.values(n, rank),
    }


def _adapted(operands: Tensors, case: Case) -> Tensors:
    x, w, a, b = (operands[name] for name in _OPERANDS)
    package = importlib.import_module(_NAME)
    layer = torch().nn.Linear(case.sizes["K"], case.sizes["N"], bias=False, device=x.device)
    model = torch().nn.ModuleDict({"layer": layer})
    config = package.LoraConfig(
        r=case.sizes["RANK"], lora_alpha=_ALPHA, lora_dropout=0.0, target_modules=["layer"]
    )
    with torch().random.fork_rng(devices=[]):
        model = package.inject_adapter_in_model(config, model)
    weights = {
        "base_layer.weight": w,
        "lora_A.default.weight": a,
        "lora_B.default.weight": b,
    }
    call = importlib.import_module("torch.func").functional_call
    return {"out": call(model["layer"], weights, (x,))}


def _whole(operands: Tensors, case: Case) -> Tensors:
    """Return x W' + x A' B' alpha / r (Hu et al. 2021, section 4.1)."""
    x, w, a, b = (operands[name] for name in _OPERANDS)
    return {"out": x @ w.mT + x @ a.mT @ b.mT * (_ALPHA / case.sizes["RANK"])}


def _terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - as every op's
    m, n, k, rank = (case.sizes[name] for name in ("M", "N", "K", "RANK"))
    return {
        "out": k + rank + 4,
        "d_x": n + rank + 4,
        "d_w": m + 4,
        "d_a": m + n + 4,
        "d_b": m + k + 4,
    }


LORA = Op(
    name="peft.LoraConfig",
    family=_NAME,
    dtypes=alone("Higham 3.5 for each of three products"),
    cases=(
        Case(sizes=dims(M=33, N=65, K=129, RANK=8)),
        Case(sizes=dims(M=9, N=17, K=33, RANK=4), pattern="integers"),
    ),
    inputs=_draw,
    call=_adapted,
    reference=linear.reference(_whole, _terms, _OPERANDS),
    gradients=_OPERANDS,
    watched=True,
    deadline=90,  # it imports transformers
)

SMOKE = Smoke(module=_NAME, distributions=("peft",), ops=(LORA,), tried=True)
