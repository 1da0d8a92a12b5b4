"""Just enough ELF: sections, the libraries needed, and nothing that a file can lie us into.

A reader of its own because the general libraries either trust counts and sizes of the file
(which a hostile file makes endless) or hold it in memory; here every offset is checked
against the file's size before use. Tests compare it with pyelftools.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

Buffer = bytes | mmap.mmap

MAGIC = b"\x7fELF"
EM_CUDA = 190
ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
_SHT_NULL, _SHT_DYNAMIC, _SHT_NOBITS = 0, 6, 8
_DT_NEEDED = 1
_MAX_SECTIONS = 1 << 20
# Longer names are cut: only a few short ones matter, and a hostile table could make a file's
# names take a thousand times its size.
_MAX_NAME = 256
_MAX_SONAME = 4096
_MAX_NEEDED = 4096
_MAX_STRINGS = 1 << 28
_SHN_XINDEX = 0xFFFF


class Malformed(Exception):
    """A field of the file contradicts the file; the message names the field."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section header as the file has it; `Elf.content` checks that it lies inside."""

    name: str
    """At most the first 256 bytes of it."""
    kind: int
    address: int
    """Where it lies in memory once loaded; 0 for what is not loaded."""
    offset: int
    """Bytes from the start of the image."""
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Elf:
    """The header fields that matter here, and the sections."""

    kind: int
    machine: int
    flags: int
    version: int
    """e_version: a toolkit's release times ten in cubins of ABI version 7, 1 in others."""
    abi_version: int
    bits: int
    endian: str
    start: int
    """Where the image begins in its buffer."""
    end: int
    sections: tuple[Section, ...]

    def find(self, name: str) -> Section | None:
        """Return the first section of that name."""
        return next((s for s in self.sections if s.name == name), None)

    def content(self, section: Section) -> tuple[int, int]:
        """Return where the section begins and ends in the buffer; raises Malformed."""
        if section.kind in (_SHT_NULL, _SHT_NOBITS):
            return self.start, self.start
        begin = self.start + section.offset
        if begin + section.size > self.end:
            message = (
                f"ELF section {section.name!r}: sh_offset {section.offset} + "
                f"sh_size {section.size} is past the end"
            )
            raise Malformed(message)
        return begin, begin + section.size


def read(buffer: Buffer, start: int = 0, size: int | None = None) -> Elf:
    """Read the ELF that occupies `size` bytes from `start`; raises Malformed."""
    end = start + (len(buffer) - start if size is None else size)
    if end - start < 52:
        message = f"ELF header: file ends after {end - start} bytes"
        raise Malformed(message)
    if buffer[start + 4] not in (1, 2) or buffer[start + 5] not in (1, 2):
        message = f"ELF e_ident: class {buffer[start + 4]}, data {buffer[start + 5]}"
        raise Malformed(message)
    wide, endian = buffer[start + 4] == 2, "<" if buffer[start + 5] == 1 else ">"
    if wide and end - start < 64:
        message = f"ELF header: file ends after {end - start} bytes"
        raise Malformed(message)
    head = struct.unpack_from(
        endian + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"), buffer, start + 16
    )
    kind, machine, version, _, _, offset, flags, _, _, _, entry, count, names = head
    abi = buffer[start + 8]
    sections: tuple[Section, ...] = ()
    if offset:
        table = _Table(
            buffer, start=start, end=end, wide=wide, endian=endian, offset=offset, entry=entry
        )
        sections = table.read(count, names)
    bits = 64 if wide else 32
    return Elf(kind, machine, flags, version, abi, bits, endian, start, end, sections)


class _Table:
    """The section header table of one ELF image."""

    def __init__(
        self,
        buffer: Buffer,
        *,
        start: int,
        end: int,
        wide: bool,
        endian: str,
        offset: int,
        entry: int,
    ) -> None:
        self.buffer, self.start, self.end = buffer, start, end
        self.layout = struct.Struct(endian + ("IIQQQQIIQQ" if wide else "IIIIIIIIII"))
        if entry < self.layout.size:
            message = f"ELF e_shentsize: {entry} bytes is less than one section header"
            raise Malformed(message)
        self.offset, self.entry = offset, entry

    def read(self, count: int, names: int) -> tuple[Section, ...]:
        """Return all sections; counts too large for the header stand in section 0."""
        first = self._rows(1)[0]
        count = count or first[5]
        names = first[6] if names == _SHN_XINDEX else names
        if count > _MAX_SECTIONS or names >= max(count, 1):
            message = f"ELF e_shnum {count}, e_shstrndx {names}: not possible"
            raise Malformed(message)
        rows = self._rows(count)
        if not rows:
            return ()
        # Index 0 means that there is no table of names.
        begin, size = (self.start + rows[names][4], rows[names][5]) if names else (self.start, 0)
        if begin + size > self.end or size > _MAX_STRINGS:
            message = f"ELF section {names} (names): sh_offset and sh_size are past the end"
            raise Malformed(message)
        text = bytes(self.buffer[begin : begin + size])
        return tuple(
            Section(_string(text, row[0]), row[1], row[3], row[4], row[5], row[6]) for row in rows
        )

    def _rows(self, count: int) -> list[tuple[int, ...]]:
        """Return raw section headers; raises Malformed past the end of the file."""
        begin = self.start + self.offset
        if begin + count * self.entry > self.end:
            message = f"ELF e_shoff {self.offset}: {count} section headers are past the end"
            raise Malformed(message)
        width = self.layout.size
        if self.entry == width:
            return list(self.layout.iter_unpack(bytes(self.buffer[begin : begin + count * width])))
        places = range(begin, begin + count * self.entry, self.entry)
        return [self.layout.unpack_from(self.buffer, at) for at in places]


def _string(text: bytes, offset: int) -> str:
    end = text.find(b"\0", offset, offset + _MAX_NAME)
    return text[offset : end if end >= 0 else offset + _MAX_NAME].decode("utf-8", "replace")


def needed(buffer: Buffer, elf: Elf) -> tuple[str, ...]:
    """Return the sonames of DT_NEEDED; raises Malformed."""
    dynamic = next((s for s in elf.sections if s.kind == _SHT_DYNAMIC), None)
    if dynamic is None or not 0 < dynamic.link < len(elf.sections):
        return ()
    strings, stop = elf.content(elf.sections[dynamic.link])
    begin, end = elf.content(dynamic)
    layout = struct.Struct(elf.endian + ("qQ" if elf.bits == 64 else "iI"))
    found: list[str] = []
    for at in range(begin, end - layout.size + 1, layout.size):
        tag, value = layout.unpack_from(buffer, at)
        if tag == 0 or len(found) == _MAX_NEEDED:
            break
        name = strings + value
        if tag == _DT_NEEDED and name < stop:
            until = buffer.find(b"\0", name, min(stop, name + _MAX_SONAME))
            found.append(bytes(buffer[name : max(name, until)]).decode("utf-8", "replace"))
    return tuple(found)
