"""How operands lie in memory: the same numbers, in places that kernels are not tuned for."""

from __future__ import annotations

import importlib
from typing import Any

Tensor = Any
LAYOUTS = ("plain", "transposed", "offset", "strided", "channels-last", "heads-last")


def arranged(tensor: Tensor, layout: str) -> Tensor:
    """Return a tensor with the same numbers in another layout; one that cannot have it as it is."""
    torch: Any = importlib.import_module("torch")
    if layout == "transposed" and tensor.dim() >= 2:
        return tensor.mT.contiguous().mT
    if layout == "offset" and tensor.dim():
        # One element past the start: no vector of 16 bytes is aligned any more.
        room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
        return room[1:].view(tensor.shape).copy_(tensor)
    if layout == "strided" and tensor.dim():
        return torch.stack((tensor, tensor), -1)[..., 0]
    if layout == "channels-last" and tensor.dim() in (4, 5):
        kind = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.contiguous(memory_format=kind)
    if layout == "heads-last" and tensor.dim() == 4:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return tensor
