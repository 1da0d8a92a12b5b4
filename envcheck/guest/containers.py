"""Where the containers of a file lie, whatever its format, and whether anything reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.coverage import UNREAD
from envcheck.guest import archive, cubin, elf, fatbin, wrappers
from envcheck.guest.elf import Buffer, Elf, Malformed
from envcheck.guest.fatbin import Entry, Packed

_HEAD = 1 << 16
SECTIONS = (".nv_fatbin", "__nv_relfatbin")


class Found(NamedTuple):
    """One container, and where it stands."""

    section: str
    entries: tuple[Entry, ...]


def find(buffer: Buffer, form: str) -> Iterator[Found]:
    """Yield each container of a file of that format; raises Malformed."""
    if form == "fatbin":
        # A driver that is handed an image reads its first container and no other.
        for count, packed in enumerate(fatbin.containers(buffer, 0, len(buffer))):
            yield _found(buffer, UNREAD if count else "file", packed)
    elif form == "archive":
        for start, size in archive.members(buffer):
            if buffer[start : start + 4] == elf.MAGIC and size >= 64:
                yield from _in_elf(buffer, elf.read(buffer, start, size))
    elif form in ("shared-object", "executable", "object"):
        yield from _in_elf(buffer, elf.read(buffer))


def _found(buffer: Buffer, section: str, packed: Packed) -> Found:
    for entry in packed.entries:
        if entry.code.kind == "sass" and not entry.compression:
            cubin.check_cubin(buffer, entry.offset, entry.stored, entry.code)
        elif entry.code.kind == "ptx" and not entry.compression:
            head = buffer[entry.offset : entry.offset + min(entry.stored, _HEAD)]
            cubin.check_ptx(bytes(head), entry.offset, entry.code)
    return Found(section, packed.entries)


def _in_elf(buffer: Buffer, image: Elf) -> Iterator[Found]:
    places = _places(buffer, image)
    behind = image.start
    for _, begin, end in sorted(places, key=lambda place: place[1:]):
        if begin < behind and begin < end:
            message = f"ELF section at {begin - image.start}: device code of two sections overlaps"
            raise Malformed(message)
        behind = max(behind, end)
    found = [(n, p) for n, begin, end in places for p in fatbin.containers(buffer, begin, end)]
    known = wrappers.registered(buffer, image, [packed.start for _, packed in found])
    for name, packed in found:
        yield _found(buffer, name if packed.start in known else UNREAD, packed)


def _places(buffer: Buffer, image: Elf) -> list[tuple[str, int, int]]:
    """Return (name, begin, end) of the sections with device code."""
    if any(section.name for section in image.sections):
        return [(s.name, *image.content(s)) for s in image.sections if s.name in SECTIONS]
    # Without section names (sstrip) the containers are still there: find their magic.
    places = []
    at = buffer.find(fatbin.HEADER, image.start, image.end)
    while at >= 0:
        until = _end_of_run(buffer, at, image.end)
        places.append((SECTIONS[0], at, until))
        at = buffer.find(fatbin.HEADER, until, image.end)
    return places


def _end_of_run(buffer: Buffer, at: int, end: int) -> int:
    """Return where the containers that stand back to back from `at` end."""
    while buffer[at : at + 8] == fatbin.HEADER:
        if at + 16 > end:
            return end
        at += 16 + int.from_bytes(buffer[at + 8 : at + 16], "little")
    return min(at, end)
