"""Fatbin containers: what each entry is for, read from its header alone.

The layout was read from files that nvcc 11.8 to 13.5 wrote and checked against 680
decompressed entries of published libraries; names follow NVIDIA's fatbinary_section.h.
The entry header carries SM number, suffix and PTX ISA version in plain bits and is what the
driver selects on, so a verdict needs no payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.device_file import Code
from envcheck.core.sm import Sm
from envcheck.guest.elf import Buffer, Malformed

MAGIC = b"\x50\xed\x55\xba"
HEADER = MAGIC + b"\1\0\x10\0"
"""How every container of every known toolkit begins: magic, version 1, header of 16 bytes."""
_CONTAINER = struct.Struct("<IHHQ")
_ALIGNMENT = 8
# kind, version, header size, payload size, compressed size, option offset, minor, major,
# SM number, identifier offset and length, flags, key, uncompressed size
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_KINDS = {1: "ptx", 2: "sass", 8: "lto-ir"}
_FLAG_LZ4, _FLAG_ZSTD, _FLAG_KEYED = 0x2000, 0x8000, 0x10000
_FLAG_A, _FLAG_F = 0x100000, 0x200000
_FLAGS = _FLAG_LZ4 | _FLAG_ZSTD | _FLAG_KEYED | _FLAG_A | _FLAG_F
_MAX_HEADER = 1 << 16
# cuBLAS holds 5,868 entries in 2,918 containers, more than any other file seen.
_MAX_ENTRIES = 1 << 18


class Entry(NamedTuple):
    """One entry of a container, payload not yet touched."""

    code: Code
    offset: int
    """Where the payload starts, bytes from the start of the buffer."""
    stored: int
    """Bytes of the payload as it stands in the file."""
    unpacked: int
    """Bytes of the payload once decompressed."""
    compression: str
    """Empty, `lz4` (raw block), `zstd` (frame) or `keyed` (obfuscated, as all LTO-IR is)."""


class Packed(NamedTuple):
    """One container."""

    start: int
    """Bytes from the start of the buffer."""
    entries: tuple[Entry, ...]


def containers(buffer: Buffer, start: int, end: int) -> Iterator[Packed]:
    """Yield each container between two offsets; raises Malformed.

    Containers stand back to back; zero bytes between them are padding, anything else means
    that code may be there which nobody can see.
    """
    at, count = start, 0
    known: _Known = {}
    while at + _CONTAINER.size <= end:
        magic, version, header, size = _CONTAINER.unpack_from(buffer, at)
        if magic != 0xBA55ED50:
            at = _skip_padding(buffer, at, end)
            continue
        if (
            version != 1
            or header < _CONTAINER.size
            or at + header + size > end
            or (at - start) % _ALIGNMENT
        ):
            message = (
                f"fatbin header at {at} (offset {at - start} of its section): version {version}, "
                f"header {header}, size {size}"
            )
            raise Malformed(message)
        entries = tuple(_entries(buffer, at + header, at + header + size, known))
        count += 1 + len(entries)
        if count > _MAX_ENTRIES:
            message = f"fatbin section at {start}: more than {_MAX_ENTRIES} entries"
            raise Malformed(message)
        yield Packed(at, entries)
        at += header + size
    if any(buffer[at:end]):
        message = f"fatbin header at {at}: section ends inside it"
        raise Malformed(message)


def _skip_padding(buffer: Buffer, at: int, end: int) -> int:
    """Return the offset of the next container after zero padding, or `end`."""
    following = buffer.find(MAGIC, at, end)
    stop = end if following < 0 else following
    for block in range(at, stop, 1 << 16):
        piece = buffer[block : min(stop, block + (1 << 16))]
        if piece.count(0) != len(piece):
            message = f"fatbin section at {block}: bytes that belong to no container"
            raise Malformed(message)
    return stop


_Known = dict[tuple[int, ...], tuple[Code, str]]
"""What the fields of a header mean, so that each combination is worked out once."""


def _entries(buffer: Buffer, at: int, end: int, known: _Known) -> Iterator[Entry]:
    while at < end:
        if at + _ENTRY.size > end:
            message = f"fatbin entry at {at}: header is past the end of its container"
            raise Malformed(message)
        fields = _ENTRY.unpack_from(buffer, at)
        kind, _, header, size, packed, option, minor, major = fields[:8]
        number, name, length, flags, _, unpacked = fields[8:]
        if not _ENTRY.size <= header <= _MAX_HEADER or at + header + size > end or packed > size:
            message = (
                f"fatbin entry at {at}: header size {header}, payload size {size}, "
                f"compressed size {packed} do not fit its container"
            )
            raise Malformed(message)
        if name + length > header or option > header - 8:
            message = (
                f"fatbin entry at {at}: identifier at {name} + {length} or options at {option} "
                f"are past its header of {header}"
            )
            raise Malformed(message)
        key = (kind, number, flags & _FLAGS, major, minor)
        if key not in known:
            known[key] = _code(*key, at), _compression(flags)
        code, compression = known[key]
        yield Entry(code, at + header, packed or size, unpacked or size, compression)
        at += header + size


def _compression(flags: int) -> str:
    if flags & _FLAG_KEYED:
        return "keyed"
    return "zstd" if flags & _FLAG_ZSTD else "lz4" if flags & _FLAG_LZ4 else ""


def _code(kind: int, number: int, flags: int, major: int, minor: int, at: int) -> Code:
    if not 10 <= number <= 999:
        message = f"fatbin entry at {at}: SM number {number}"
        raise Malformed(message)
    if flags & _FLAG_A and flags & _FLAG_F:
        message = f"fatbin entry at {at}: flags mark it `a` and `f` at once"
        raise Malformed(message)
    suffix = "a" if flags & _FLAG_A else "f" if flags & _FLAG_F else ""
    name = _KINDS.get(kind, f"kind-{kind:#x}")
    return Code(
        kind=name, sm=str(Sm(number, suffix)), isa=f"{major}.{minor}" if kind == 1 else None
    )
