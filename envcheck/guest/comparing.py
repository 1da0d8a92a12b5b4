"""Outputs beside what they should be: how far off they are, and which bytes they hold."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

from envcheck.core.kernels import Tolerance
from envcheck.guest.operands import difference
from envcheck.guest.ops.op import Expected, Tensor, Tensors
from envcheck.guest.ops.torches import torch

_LARGEST = 1e300
"""Stands for infinity, which documents do not know."""


def whole(tensors: Tensors, where: str) -> Tensors:
    """Return the tensors at a place, those of real numbers in float64."""
    return {
        name: tensor.detach().to(where, torch().float64)
        if tensor.is_floating_point()
        else tensor.to(where)
        for name, tensor in tensors.items()
    }


def on_cpu(expected: Expected) -> Expected:
    """Return the reference with all its tensors on the CPU."""
    return {k: v.cpu() if torch().is_tensor(v) else v for k, v in expected.items()}


def compare(
    output: Tensor, expected: Expected, rule: Tolerance, *, exactly: bool
) -> dict[str, Any]:
    """Return `finite`, `relative`, `worst` and `exact` of one output."""
    numbers = output.detach().cpu()
    finite = bool(numbers.isfinite().all()) if numbers.is_floating_point() else True
    facts: dict[str, Any] = {"finite": finite, "relative": None, "worst": None, "exact": None}
    value = expected.get("value")
    if value is None:
        return facts
    if numbers.shape != value.shape:
        message = f"the output has the shape {tuple(numbers.shape)}, not {tuple(value.shape)}"
        raise ValueError(message)
    if exactly:
        facts["exact"] = bool(numbers.double().equal(value.to(numbers.dtype).double()))
    bounded = "magnitude" in expected
    if facts["exact"] and not numbers.is_floating_point():
        facts |= {"relative": 0.0, "worst": 0.0 if bounded else None}
    elif finite:
        value = value.double()
        magnitude = expected["magnitude"].double() if bounded else value.abs()
        full = {"terms": 1, **expected, "value": value, "magnitude": magnitude}
        found = difference(numbers, full, rule)
        facts["relative"] = min(found.relative, _LARGEST)
        # Where the bound is zero, anything else is infinitely wrong, which `exact` says.
        facts["worst"] = min(found.worst, _LARGEST) if bounded else None
    return facts


def same_bytes(first: Tensor, second: Tensor) -> bool:
    """Compare where they lie; NaNs are the same where their bits are."""
    if (first.shape, first.dtype, first.device) != (second.shape, second.dtype, second.device):
        return False
    one, other = (_plain(t).flatten().view(torch().uint8) for t in (first, second))
    return bool(one.equal(other))


def _plain(tensor: Tensor) -> Tensor:
    """Return it as its bytes lie in memory: neither strided, nor conjugated when it is read."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.clone(memory_format=torch().contiguous_format)  # a single one has any stride


def digest(numbers: Tensor) -> str:
    """Return the sha256 of what lies on the CPU."""
    numbers = _plain(numbers)
    size = numbers.numel() * numbers.element_size()
    content = (ctypes.c_char * size).from_address(numbers.data_ptr()) if size else b""
    return hashlib.sha256(content).hexdigest()
