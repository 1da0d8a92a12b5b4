"""Torch, imported where it is used, and references for what only moves numbers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from envcheck.guest.ops.op import Case, Expected, Tensor, Tensors


def torch() -> Any:
    """Return the module."""
    return importlib.import_module("torch")


def functional() -> Any:
    """Return `torch.nn.functional`."""
    return importlib.import_module("torch.nn.functional")


def sure(value: Tensor) -> Expected:
    """Expect exactly this."""
    return {"value": value.double(), "exact": True}


def claim(holds: bool | Tensor, like: Tensor) -> Tensor:  # noqa: FBT001 - it is what is claimed
    """Return an output that says whether something holds, on the device where it was found."""
    return torch().as_tensor(holds, device=like.device).to(torch().int32).reshape(1)


def held() -> Expected:
    """Expect that a claim holds."""
    return sure(torch().ones(1))


def moved(
    compute: Callable[[Tensors, Case], Tensors],
) -> Callable[[Tensors, Case], Mapping[str, Expected]]:
    """Return a reference for what only chooses and moves numbers: the same on the CPU."""

    def compare(operands: Tensors, case: Case) -> Mapping[str, Expected]:
        return {name: sure(value) for name, value in compute(operands, case).items()}

    return compare
