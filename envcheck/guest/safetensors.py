"""The header of a safetensors file: read and compared with the file, as its library does.

The format: eight bytes of length, that many bytes of JSON, then the tensors without a gap between
them (the format's own description; what is refused here was refused by safetensors 0.8.0).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, NoReturn, TypeGuard

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of one element, of each dtype that safetensors 0.8.0 lists."""

POINTER = b"version https://git-lfs"
"""How a file begins whose content Git LFS was not asked for."""

MAX_HEADER = 100_000_000  # the library's own limit
_PIECE = 1 << 20
_MAX_DIMENSIONS = 64


class Broken(Exception):
    """The header contradicts the format or the file."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, as the header describes it."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    """Where its bytes begin in the file."""
    end: int


def header(handle: IO[bytes]) -> dict[str, Tensor]:
    """Return the tensors by their names; raises Broken and OSError."""
    size = os.fstat(handle.fileno()).st_size
    first = handle.read(len(POINTER))
    if first == POINTER:
        _refuse("it is a pointer of Git LFS, and not the file")
    handle.seek(8)
    length = int.from_bytes(first[:8], "little")
    if size < 8 or length > min(size - 8, MAX_HEADER):
        _refuse(f"safetensors header of {length} bytes in a file of {size}")
    try:
        data = json.loads(exactly(handle, length).decode("utf-8"))
    except (ValueError, RecursionError):
        _refuse("safetensors header: not JSON")
    if not isinstance(data, dict):
        _refuse("safetensors header: not an object")
    said = data.pop("__metadata__", {})
    if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
        _refuse("safetensors header: __metadata__ holds something else than texts")
    start = 8 + length
    tensors = {name: _tensor(name, entry, start) for name, entry in data.items()}
    _require_no_gap(tensors, start, size)
    return tensors


def exactly(handle: IO[bytes], length: int) -> bytes:
    """Read that many bytes: an unbuffered file may return fewer at a time."""
    pieces = []
    while length > 0 and (piece := handle.read(min(length, _PIECE))):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _tensor(name: str, entry: Any, start: int) -> Tensor:
    told = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = (told.get(key) for key in ("dtype", "shape", "data_offsets"))
    where = f"tensor {name[:100]!r}"
    if not isinstance(dtype, str) or dtype not in BITS:
        _refuse(f"{where} has the dtype {str(dtype)[:20]!r}, which safetensors does not know")
    if not _sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        _refuse(f"{where} has no shape of whole numbers")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(f"{where} has no data_offsets that begin before they end")
    begin, end = offsets
    if math.prod(shape) * BITS[dtype] != (end - begin) * 8:
        _refuse(f"{where} has {end - begin} bytes, which its dtype and shape contradict")
    return Tensor(dtype, tuple(shape), start + begin, start + end)


def _sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _require_no_gap(tensors: Mapping[str, Tensor], start: int, size: int) -> None:
    """Refuse tensors that overlap, leave a gap, or end elsewhere than the file."""
    at = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.end > size:
            _refuse(f"tensor {name[:100]!r} ends past the end of the file: it was cut off")
        if tensor.begin != at:
            how = "overlaps another one" if tensor.begin < at else "leaves a gap before it"
            _refuse(f"tensor {name[:100]!r} {how}")
        at = tensor.end
    if at != size:
        _refuse(f"{size - at} bytes after the last tensor belong to none")


def _refuse(message: str) -> NoReturn:
    raise Broken(message)
