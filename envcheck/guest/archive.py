"""Static libraries (`ar`): where each member lies in the file."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.guest.elf import Buffer, Malformed

AR_MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"
_HEADER = 60


def members(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of each member; raises Malformed.

    GNU's symbol and name tables come out as members too: they are not ELF, and no caller
    needs a member's name.
    """
    at, end = len(AR_MAGIC), len(buffer)
    while at + _HEADER <= end:
        field = bytes(buffer[at + 48 : at + 58]).strip()
        if buffer[at + 58 : at + 60] != b"`\n" or not field.isdigit():
            message = f"ar member header at {at}: size field {field[:20]!r}"
            raise Malformed(message)
        size = int(field)
        if at + _HEADER + size > end:
            message = f"ar member at {at}: {size} bytes are past the end"
            raise Malformed(message)
        yield at + _HEADER, size
        at += _HEADER + size + size % 2
