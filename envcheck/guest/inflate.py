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
_SIZE_NOT_SAID = (1 << 64) - 1


def inflate(payload: bytes, compression: str, unpacked: int) -> bytes:
    """Decompress one payload to `unpacked` bytes; raises ValueError when that cannot be done.

    Nothing is allocated on the word of the payload, nor on the header's alone.
    """
    if compression == "zstd":
        try:
            from compression import zstd  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            pass
        else:
            try:
                data = zstd.ZstdDecompressor().decompress(payload, max_length=unpacked + 1)
            except zstd.ZstdError as error:
                message = f"zstd: {error}"
                raise ValueError(message) from None
            return _sized(data, compression, unpacked)
    library = _library(compression)
    if library is None:
        name = _LIBRARIES.get(compression, compression)
        message = f"{compression}: neither this Python nor {name} is there to unpack it"
        raise ValueError(message)
    if not _believable(library, payload, compression, unpacked):
        message = f"{compression}: {len(payload)} bytes do not become {unpacked}"
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


def _believable(library: ctypes.CDLL, payload: bytes, compression: str, unpacked: int) -> bool:
    """Say whether the header's size can be true: the frame agrees, or LZ4 could reach it."""
    if compression == "lz4":
        return unpacked <= 255 * len(payload)
    said = library.ZSTD_getFrameContentSize(payload, len(payload))
    return said in (unpacked, _SIZE_NOT_SAID)


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
        library.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
        library.ZSTD_getFrameContentSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
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
