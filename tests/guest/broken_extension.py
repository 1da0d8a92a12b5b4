"""An extension that registers operations with torch, most of them broken as they are named.

Loaded by its path in the process that calls it, as an installed package would be imported.
"""

from __future__ import annotations

import ctypes
import os
import warnings

import torch

LIBRARY = torch.library.Library("planted", "DEF")
KEPT: list[torch.Tensor] = []


def good(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def drops_the_tail(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    whole = len(b) // 32 * 32
    return a[:, :whole] @ b[:whole]


def falls_back(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.cpu() @ b.cpu()).to(a.device)


def warns(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    warnings.warn("no kernel image for this device, falling back to PyTorch", stacklevel=1)
    return a @ b


def leaks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    KEPT.append(a @ b)
    return KEPT[-1].clone()


def lies(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    os.write(1, b'["run", {"op": "planted", "outcome": {"status": "ok"}}]\n["end", null]\n')
    return drops_the_tail(a, b)


def raises(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    message = "CUDA error: no kernel image is available for execution on the device"
    raise RuntimeError(message)


def exits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    ctypes.CDLL(None).exit(1)
    return a @ b


def crashes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    ctypes.string_at(0)
    return a @ b


for function in (good, drops_the_tail, falls_back, warns, leaks, lies, raises, exits, crashes):
    LIBRARY.define(f"{function.__name__}(Tensor a, Tensor b) -> Tensor")
    LIBRARY.impl(function.__name__, function, "CompositeExplicitAutograd")
