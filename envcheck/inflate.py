"""Decompress fatbin payloads with the libraries that others keep well (host only)."""

from __future__ import annotations


def inflate(payload: bytes, compression: str, unpacked: int) -> bytes:
    """Decompress one payload to `unpacked` bytes; raises ValueError when it does not fit."""
    if compression == "zstd":
        import zstandard

        try:
            data = zstandard.ZstdDecompressor().decompress(payload, max_output_size=unpacked)
        except zstandard.ZstdError as error:
            message = f"zstd: {error}"
            raise ValueError(message) from None
    else:
        import lz4.block

        try:
            data = lz4.block.decompress(payload, uncompressed_size=unpacked)
        except lz4.block.LZ4BlockError as error:
            message = f"lz4: {error}"
            raise ValueError(message) from None
    if len(data) != unpacked:
        message = f"{compression}: {len(data)} bytes where the header says {unpacked}"
        raise ValueError(message)
    return bytes(data)
