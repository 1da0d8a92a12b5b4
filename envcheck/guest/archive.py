"""Static libraries (`ar`): where each member lies in the file."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.guest.elf import Buffer, Malformed

AR_MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"
_HEADER = 60


def members(buffer: Buffer) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of each member; raises Malformed.

    GNU's symbol and name tables come out as members too: they are not ELF. Names are read
    only where they say where the bytes are: BSD puts long ones before the member's bytes,
    GNU into a table that comes first.
    """
    at, end, table = len(AR_MAGIC), len(buffer), 0
    while at + _HEADER <= end:
        field = bytes(buffer[at + 48 : at + 58]).strip()
        if buffer[at + 58 : at + 60] != b"`\n" or not field.isdigit():
            message = f"ar member header at {at}: size field {field[:20]!r}"
            raise Malformed(message)
        size = int(field)
        if at + _HEADER + size > end:
            message = f"ar member at {at}: {size} bytes are past the end"
            raise Malformed(message)
        name = bytes(buffer[at : at + 16]).rstrip()
        if name == b"//":
            table = size
        before = _digits(name, b"#1/")
        if before > size or _digits(name, b"/") > table:
            message = f"ar member at {at}: name {name!r} is past the end"
            raise Malformed(message)
        yield at + _HEADER + before, size - before
        at += _HEADER + size + size % 2
    if bytes(buffer[at:end]).strip():
        message = f"ar member header at {at}: file ends inside it"
        raise Malformed(message)


def _digits(name: bytes, prefix: bytes) -> int:
    """Return the number that follows `prefix`, 0 for a name of another form."""
    digits = name[len(prefix) :]
    return int(digits) if name.startswith(prefix) and digits.isdigit() else 0
