"""Decompress fatbin payloads with what an environment brings: its Python, or its libraries.

A guest runs where nothing can be installed. Python has zstd from 3.14 on; Debian, Ubuntu and
Fedora images carry libzstd and liblz4 because their package managers need them.
"""

from __future__ import annotations

import ctypes
from functools import cache

# Names that the system's package managers link against; their interface has been stable
# since zstd 1.0 and lz4 1.7.
_LIBRARIES = {"zstd": "libzstd.so.1", "lz4": "liblz4.so.1"}


def inflate(payload: bytes, compression: str, unpacked: int) -> bytes:
    """Decompress one payload to `unpacked` bytes; raises ValueError when that cannot be done."""
    if compression == "zstd":
        try:
            from compression import zstd  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            pass
        else:
            return _sized(zstd.decompress(payload), compression, unpacked)
    library = _library(compression)
    if library is None:
        name = _LIBRARIES.get(compression, compression)
        message = f"{compression}: neither this Python nor {name} is there to unpack it"
        raise ValueError(message)
    target = ctypes.create_string_buffer(max(unpacked, 1))
    if compression == "zstd":
        size = library.ZSTD_decompress(target, unpacked, payload, len(payload))
    else:
        size = library.LZ4_decompress_safe(payload, target, len(payload), unpacked)
    if size != unpacked:
        message = f"{compression}: damaged, or not {unpacked} bytes"
        raise ValueError(message)
    return target.raw[:unpacked]


def _sized(data: bytes, compression: str, unpacked: int) -> bytes:
    if len(data) != unpacked:
        message = f"{compression}: {len(data)} bytes where the header says {unpacked}"
        raise ValueError(message)
    return data


@cache
def _library(compression: str) -> ctypes.CDLL | None:
    name = _LIBRARIES.get(compression)
    try:
        library = ctypes.CDLL(name) if name is not None else None
    except OSError:
        return None
    if library is None:
        return None
    if compression == "zstd":
        library.ZSTD_decompress.restype = ctypes.c_size_t
        library.ZSTD_decompress.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]
    else:
        library.LZ4_decompress_safe.restype = ctypes.c_int
        library.LZ4_decompress_safe.argtypes = [
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_int,
        ]
    return library
