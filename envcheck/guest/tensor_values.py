"""What a tensor's bytes tell without a library of numbers: all zero, or not all finite."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO

from envcheck.guest.safetensors import BITS, Tensor

_PIECE = 1 << 20
# The bytes of 0.0 and of -0.0, whose sign alone is set; what else they make is hardly above zero.
_ZEROS = b"\x00\x80"
# How the last two bytes of an element that is infinite or NaN look: all bits of its exponent are
# set. For one byte the second class is of that byte; E4M3 has no infinity (OCP 8-bit formats).
_NOT_FINITE = {
    "F64": rb"[\xf0-\xff][\x7f\xff]",
    "F32": rb"[\x80-\xff][\x7f\xff]",
    "BF16": rb"[\x80-\xff][\x7f\xff]",
    "F16": rb"[\x00-\xff][\x7c-\x7f\xfc-\xff]",
    "F8_E5M2": rb"[\x7c-\x7f\xfc-\xff]",
    "F8_E4M3": rb"[\x7f\xff]",
}


@dataclass(frozen=True, slots=True)
class Values:
    """What was seen in one tensor."""

    zero: bool
    finite: bool


def look(handle: IO[bytes], tensor: Tensor) -> Values:
    """Read a tensor whole, unless it is neither; raises OSError."""
    handle.seek(tensor.begin)
    width = max(1, BITS[tensor.dtype] // 8)
    pattern = _NOT_FINITE.get(tensor.dtype)
    zero, left = tensor.end > tensor.begin, tensor.end - tensor.begin
    rest = b""
    while left > 0 and (piece := handle.read(min(left, _PIECE))):
        left -= len(piece)
        zero = zero and not piece.translate(None, _ZEROS)
        if pattern is not None:
            # An unbuffered read may end within an element.
            piece = rest + piece  # noqa: PLW2901
            whole = len(piece) - len(piece) % width
            if _not_finite(piece[:whole], width, pattern):
                return Values(zero=False, finite=False)
            rest = piece[whole:]
    return Values(zero=zero and left == 0, finite=True)


def _not_finite(piece: bytes, width: int, pattern: bytes) -> bool:
    if width == 1:
        return re.search(pattern, piece, re.DOTALL) is not None
    high, low = piece[width - 1 :: width], piece[width - 2 :: width]
    # Most tensors hold nothing so large, and need no closer look.
    if re.search(pattern[pattern.rindex(b"[") :], high, re.DOTALL) is None:
        return False
    both = bytearray(2 * len(high))
    both[0::2], both[1::2] = low, high
    return any(
        match.start() % 2 == 0
        for match in re.finditer(b"(?=" + pattern + b")", bytes(both), re.DOTALL)
    )
