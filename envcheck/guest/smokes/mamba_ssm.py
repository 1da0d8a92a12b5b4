"""mamba-ssm: the selective scan, forward and backward."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import alone
from envcheck.guest.ops.torches import torch
from envcheck.guest.smokes.smoke import Smoke

_NAME = "mamba_ssm"
_LINEAR = ("u", "b", "c", "d")
"""What the output is linear in, each for itself; the factors of a state are positive."""


def _draw(case: Case, draw: Operands) -> Tensors:
    batch, channels, states, length = (case.sizes[n] for n in ("B", "D", "N", "T"))
    return {
        "u": draw.values(batch, channels, length),
        "b": draw.values(batch, states, length),
        "c": draw.values(batch, states, length),
        "d": draw.values(channels),
        "_delta": draw.positive(batch, channels, length),
        "_decay": draw.positive(channels, states),  # of which the package takes the negative
    }


def _scan(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    package = importlib.import_module("mamba_ssm.ops.selective_scan_interface")
    u, b, c, d = (operands[name] for name in _LINEAR)
    return {"out": package.selective_scan_fn(u, operands["_delta"], -operands["_decay"], b, c, d)}


def _plain(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    """Return the scan step by step (Gu and Dao, arXiv 2312.00752, algorithm 2)."""
    u, b, c, d = (operands[name] for name in _LINEAR)
    delta, decay = operands["_delta"], operands["_decay"]
    state, outputs = u.new_zeros(*u.shape[:2], b.shape[1]), []
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]
        kept = torch().exp(-step * decay) * state
        state = kept + step * b[:, None, :, t] * u[:, :, t, None]
        outputs.append((state * c[:, None, :, t]).sum(-1) + d * u[:, :, t])
    return {"out": torch().stack(outputs, 2)}


def _terms(operands: Tensors, case: Case) -> Mapping[str, int]:  # noqa: ARG001 - idem
    # Each step multiplies by an exponential: its argument, smaller than 1, is rounded once, the
    # function is right to 2 units, and product and sum are rounded once. A gradient adds up
    # over the channels or the places besides.
    steps = 8 * case.sizes["T"] + case.sizes["N"] + 8
    return {
        "out": steps,
        "d_u": 2 * steps,
        "d_b": 2 * steps + case.sizes["D"],
        "d_c": 2 * steps + case.sizes["D"],
        "d_d": case.sizes["B"] * case.sizes["T"] + 4,
    }


SCAN = Op(
    name="mamba_ssm.selective_scan_fn",
    family=_NAME,
    dtypes=alone("Higham 3.1; CUDA C++ Programming Guide: expf is right to 2 units"),
    cases=(
        Case(sizes=dims(B=2, D=12, N=16, T=131)),
        Case(sizes=dims(B=1, D=8, N=8, T=64), pattern="zeros"),
    ),
    inputs=_draw,
    call=_scan,
    reference=linear.reference(_plain, _terms, _LINEAR),
    gradients=_LINEAR,
    exact=("zeros",),
    atomics=("backward",),
    watched=True,
)

SMOKE = Smoke(module=_NAME, distributions=("mamba-ssm",), ops=(SCAN,), tried=True)
