"""Which containers of a linked file the CUDA runtime is handed.

The runtime registers what the wrappers in `.nvFatBinSegment` point to, and reads one container
at each place (seen on an H200: a second container behind it is never looked at). nvcc writes a
wrapper for each container, so this matters only where there are fewer wrappers than
containers: a link stub without one, or a file made by hand.
"""

from __future__ import annotations

import struct

from envcheck.guest.elf import Buffer, Elf, Section

_SEGMENT = ".nvFatBinSegment"
_WRAPPER = struct.Struct("<IIQQ")  # magic, version, container, file name or relocatable containers
_MAGIC = 0x466243B1
_RELOCATION = struct.Struct("<Q8xQ")  # address, addend
_MAX_WRAPPERS = 1 << 12


def registered(buffer: Buffer, elf: Elf, containers: list[int]) -> frozenset[int]:
    """Return those container offsets that a wrapper points to; all where that is not told.

    `containers` are offsets in the buffer. Raises Malformed.
    """
    everything = frozenset(containers)
    segment = elf.find(_SEGMENT)
    if segment is None or elf.bits != 64 or elf.endian != "<":
        return everything
    begin, end = elf.content(segment)
    count = (end - begin) // _WRAPPER.size
    if not 0 < count < len(containers) or count > _MAX_WRAPPERS:
        return everything
    written = _relocations(buffer, elf, segment)
    found = set()
    for at in range(begin, begin + count * _WRAPPER.size, _WRAPPER.size):
        magic, _, pointer, _ = _WRAPPER.unpack_from(buffer, at)
        place = _offset(elf, written.get(segment.address + at - begin + 8, pointer))
        if magic != _MAGIC or place not in everything:
            return everything
        found.add(place)
    return frozenset(found)


def _relocations(buffer: Buffer, elf: Elf, segment: Section) -> dict[int, int]:
    """Return what the loader writes into the wrappers, by address: the relocations' addends."""
    table = elf.find(".rela.dyn")
    if table is None:
        return {}
    begin, end = elf.content(table)
    rows = _RELOCATION.iter_unpack(buffer[begin : end - (end - begin) % _RELOCATION.size])
    return {address: addend for address, addend in rows if _holds(segment, address)}


def _offset(elf: Elf, address: int) -> int | None:
    """Return where an address of the loaded image lies in the buffer."""
    return next((_place(s, elf, address) for s in elf.sections if _holds(s, address)), None)


def _holds(section: Section, address: int) -> bool:
    return bool(section.address) and 0 <= address - section.address < section.size


def _place(section: Section, elf: Elf, address: int) -> int:
    return elf.start + section.offset + address - section.address
