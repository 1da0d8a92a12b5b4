"""For which PyTorch releases packages are made that say so in no Requires-Dist line."""

from __future__ import annotations

import re
from dataclasses import dataclass

# torchao -> releases of torch that its C++ kernels are made for, and those that its Python takes
# beside. Source: pytorch/ao#2919, "torchao release compatibility table", as of 2025-09; the next
# row is read there. 0.18.0 says it itself, in torchao/__init__.py (">= 2.11.0").
TORCHAO: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "0.12.0": (("2.7.1", "2.6.0", "2.5.0"), ()),
    "0.13.0": (("2.8.0",), ("2.7.1", "2.6.0")),
    "0.14.1": (("2.9.0",), ("2.8.0", "2.7.1")),
}
TORCHAO_LEAST = {"0.18.0": "2.11.0"}

_CUDA = re.compile(r"(?:^|[.\d])cu(\d{2,3})(?!\d)|(?:^|\.)(cpu)(?:\.|$)|^(rocm)")
_FOR_TORCH = re.compile(r"torch\.?(\d+)\.(\d+)(?:\.\d+)?|pt(\d)\.?(\d{1,2})(?=cu|cpu|$|\.)")
_ABI = re.compile(r"cxx11abi(true|false)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Local:
    """What a local version label says, such as `cu128` or `cu12torch2.5cxx11abifalse`."""

    cuda: str | None = None
    """`12.8`, `12` where no more is said, `cpu`, `rocm`; None where nothing is."""
    torch: str | None = None
    """`2.5`: the release that it was compiled for."""
    cxx11_abi: bool | None = None


def local(version: str) -> Local:
    """Read the local label of a version; wheels of torch, flash-attn and PyG use these forms."""
    label = version.partition("+")[2].lower()
    torch, abi = _FOR_TORCH.search(label), _ABI.search(label)
    release = None
    if torch is not None:
        release = f"{torch[1] or torch[3]}.{torch[2] or torch[4]}"
    return Local(
        cuda=_cuda(label), torch=release, cxx11_abi=None if abi is None else abi[1] == "true"
    )


def _cuda(label: str) -> str | None:
    match = _CUDA.search(label)
    if match is None:
        return None
    digits = match[1]
    if digits is None:
        return match[2] or match[3]
    return digits if len(digits) == 2 else f"{digits[:2]}.{digits[2:]}"
