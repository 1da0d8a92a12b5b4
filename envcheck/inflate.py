"""Decompress fatbin payloads with the libraries that others keep well (host only)."""

from __future__ import annotations


def inflate(payload: bytes, compression: str, unpacked: int) -> bytes:
    """Decompress one payload to `unpacked` bytes; raises ValueError when it does not fit.

    Nothing is allocated on the word of the payload alone: zstd would take the size that its
    frame names, and LZ4 whatever it is asked for, though it never grows more than 255 times.
    """
    if compression == "zstd":
        import zstandard

        try:
            named = zstandard.frame_content_size(payload)
            if named not in (-1, unpacked):
                message = f"zstd: the frame says {named} bytes where the header says {unpacked}"
                raise ValueError(message)
            data = zstandard.ZstdDecompressor().decompress(payload, max_output_size=unpacked)
        except zstandard.ZstdError as error:
            message = f"zstd: {error}"
            raise ValueError(message) from None
    else:
        import lz4.block

        if unpacked > 255 * len(payload):
            message = f"lz4: {len(payload)} bytes cannot become the {unpacked} of the header"
            raise ValueError(message)
        try:
            data = lz4.block.decompress(payload, uncompressed_size=unpacked)
        except lz4.block.LZ4BlockError as error:
            message = f"lz4: {error}"
            raise ValueError(message) from None
    if len(data) != unpacked:
        message = f"{compression}: {len(data)} bytes where the header says {unpacked}"
        raise ValueError(message)
    return bytes(data)
