"""What an ELF file tells the loader: names, search paths, versions, and where its tables lie.

The loader reads program headers and never section headers, so this does too: a stripped file
has only those. Every address is looked up in the loaded segments, and every count of the file
is held against the file's size, so a hostile one ends in `Malformed` and not in a long loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from envcheck.guest.elf import ET_DYN, ET_EXEC, MAGIC, Buffer, Malformed

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
DT_NEEDED, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB = 1, 2, 4, 5, 6
DT_RELA, DT_RELASZ, DT_STRSZ, DT_SONAME, DT_RPATH, DT_REL, DT_RELSZ = 7, 8, 10, 14, 15, 17, 18
DT_JMPREL, DT_RUNPATH = 23, 29
DT_GNU_HASH, DT_VERSYM, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DF_1_NODEFLIB = 0x800
_VER_FLG_WEAK = 2
_MAX_SEGMENTS = 1024
_MAX_ENTRIES = 1 << 16
_MAX_STRING = 1 << 14
# glibc itself defines some fifty versions, and the most that is known are a few hundred.
_MAX_VERSIONS = 1 << 14


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """One version that a file wants of one library."""

    file: str
    """The soname that it must be found in: `libstdc++.so.6`."""
    name: str
    """`GLIBCXX_3.4.32`."""
    index: int
    """What the symbols that want it carry."""
    weak: bool
    """The loader does without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """The dynamic section of one program or shared object, and what its tables hold."""

    kind: int
    """ET_DYN or ET_EXEC."""
    machine: int
    bits: int
    endian: str
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    """None where there is a RUNPATH, beside which the loader ignores it."""
    runpath: str | None = None
    interpreter: str | None = None
    no_default: bool = False
    """DF_1_NODEFLIB: the default folders are not searched."""
    needs: tuple[VersionNeed, ...] = ()
    definitions: dict[int, str] = field(default_factory=dict)
    """Version names by index, without the base version that names the file."""
    versioned: bool = False
    """Whether there are definitions at all; without, the loader takes any version."""
    tables: dict[int, int] = field(default_factory=dict)
    """Tags that hold addresses, as offsets in the file, and sizes as they are."""


def read(buffer: Buffer) -> Dynamic:
    """Read a file as the loader would; raises Malformed, also for what nothing can load."""
    return _Reader(buffer).read()


class _Reader:
    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        if len(buffer) < 52 or buffer[:4] != MAGIC:
            message = "not an ELF file" if buffer[:4] != MAGIC else "ELF header: file ends in it"
            raise Malformed(message)
        if buffer[4] not in (1, 2) or buffer[5] not in (1, 2):
            message = f"ELF e_ident: class {buffer[4]}, data {buffer[5]}"
            raise Malformed(message)
        self.wide, self.endian = buffer[4] == 2, "<" if buffer[5] == 1 else ">"
        self.segments: list[tuple[int, int, int]] = []
        self.strings, self.strings_end = 0, 0

    def read(self) -> Dynamic:
        form = "HHIQQQIHHHHHH" if self.wide else "HHIIIIIHHHHHH"
        head = self._unpack(form, 16, "ELF header")
        kind, machine, _, _, offset, _, _, _, entry, count, *_ = head
        if kind not in (ET_DYN, ET_EXEC):
            message = f"ELF e_type {kind}: neither a program nor a shared object"
            raise Malformed(message)
        section, interpreter = None, None
        for form_kind, place, address, size in self._program_headers(offset, entry, count):
            if form_kind == _PT_LOAD:
                if place + size > len(self.buffer):
                    # Mapped without a word, and the first access ends the process (SIGBUS).
                    message = f"PT_LOAD: {size} bytes at {place}, past the end of the file"
                    raise Malformed(message)
                self.segments.append((address, address + size, place))
            elif form_kind == _PT_DYNAMIC:
                section = (place, size)
            elif form_kind == _PT_INTERP:
                interpreter = (
                    self._bytes(place, min(size, _MAX_STRING))
                    .rstrip(b"\0")
                    .decode("utf-8", "replace")
                )
        bits = 64 if self.wide else 32
        if section is None:
            return Dynamic(
                kind=kind, machine=machine, bits=bits, endian=self.endian, interpreter=interpreter
            )
        entries = list(self._entries(*section))
        last = dict(entries)
        if DT_STRTAB not in last:
            message = "PT_DYNAMIC: no DT_STRTAB, which every one has"
            raise Malformed(message)
        self.strings = self._offset(last[DT_STRTAB], "DT_STRTAB")
        self.strings_end = min(len(self.buffer), self.strings + last.get(DT_STRSZ, 0))
        runpath = self._optional(last, DT_RUNPATH)
        needed = tuple(self.text(value) for tag, value in entries if tag == DT_NEEDED)
        if "" in needed:
            message = "DT_NEEDED: an empty name"
            raise Malformed(message)
        return Dynamic(
            kind=kind,
            machine=machine,
            bits=bits,
            endian=self.endian,
            soname=self._optional(last, DT_SONAME),
            needed=needed,
            rpath=self._optional(last, DT_RPATH) if runpath is None else None,
            runpath=runpath,
            interpreter=interpreter,
            no_default=bool(last.get(DT_FLAGS_1, 0) & _DF_1_NODEFLIB),
            needs=tuple(self._needs(last)),
            definitions=dict(self._definitions(last)),
            versioned=DT_VERDEF in last,
            tables=self._tables(last),
        )

    def _unpack(self, form: str, at: int, what: str) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self.endian + form, self.buffer, at)
        except (struct.error, OverflowError):
            message = f"{what}: at {at}, past the end of the file"
            raise Malformed(message) from None

    def _bytes(self, at: int, size: int) -> bytes:
        return bytes(self.buffer[at : at + size])

    def _program_headers(
        self, offset: int, entry: int, count: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield (type, offset, address, size in the file) of each segment."""
        if count > _MAX_SEGMENTS:
            message = f"ELF e_phnum {count}: not possible"
            raise Malformed(message)
        for at in range(offset, offset + count * entry, entry or 1):
            if self.wide:
                kind, _, place, address, _, size = self._unpack("IIQQQQ", at, "ELF e_phoff")
            else:
                kind, place, address, _, size = self._unpack("IIIII", at, "ELF e_phoff")
            yield kind, place, address, size

    def _entries(self, place: int, size: int) -> Iterator[tuple[int, int]]:
        width, form = (16, "QQ") if self.wide else (8, "II")
        for at in range(place, place + min(size // width, _MAX_ENTRIES) * width, width):
            tag, value = self._unpack(form, at, "PT_DYNAMIC")
            if tag == 0:
                return
            yield tag, value

    def _offset(self, address: int, what: str) -> int:
        """Return where an address of memory lies in the file."""
        for begin, end, place in self.segments:
            if begin <= address < end and place + address - begin < len(self.buffer):
                return place + address - begin
        message = f"{what} {address:#x}: in no segment of the file"
        raise Malformed(message)

    def text(self, offset: int) -> str:
        """Return a string of the string table, cut where it is absurdly long."""
        begin = self.strings + offset
        stop = min(self.strings_end, begin + _MAX_STRING)
        end = self.buffer.find(b"\0", begin, stop)
        return bytes(self.buffer[begin : stop if end < 0 else end]).decode("utf-8", "replace")

    def _optional(self, last: dict[int, int], tag: int) -> str | None:
        return self.text(last[tag]) if tag in last else None

    def _tables(self, last: dict[int, int]) -> dict[int, int]:
        found = {}
        for tag in (DT_SYMTAB, DT_HASH, DT_GNU_HASH, DT_VERSYM, DT_RELA, DT_REL, DT_JMPREL):
            if tag in last and (last[tag] or tag not in (DT_RELA, DT_REL, DT_JMPREL)):
                found[tag] = self._offset(last[tag], f"dynamic tag {tag:#x}")
        found |= {tag: last[tag] for tag in (DT_RELASZ, DT_RELSZ, DT_PLTRELSZ) if tag in last}
        if last:
            found[DT_STRTAB], found[DT_STRSZ] = self.strings, self.strings_end - self.strings
        return found

    def _needs(self, last: dict[int, int]) -> Iterator[VersionNeed]:
        if DT_VERNEED not in last:
            return
        at, left = self._offset(last[DT_VERNEED], "DT_VERNEED"), _MAX_VERSIONS
        for _ in range(min(last.get(DT_VERNEEDNUM, 0), _MAX_VERSIONS)):
            _, count, file, first, following = self._unpack("HHIII", at, "DT_VERNEED")
            inner, name = at + first, self.text(file)
            for _ in range(min(count, left)):
                left -= 1
                _, flags, index, version, step = self._unpack("IHHII", inner, "DT_VERNEED")
                yield VersionNeed(
                    name, self.text(version), index & 0x7FFF, bool(flags & _VER_FLG_WEAK)
                )
                inner += step
            at += following
            if not following:
                return

    def _definitions(self, last: dict[int, int]) -> Iterator[tuple[int, str]]:
        if DT_VERDEF not in last:
            return
        at = self._offset(last[DT_VERDEF], "DT_VERDEF")
        for _ in range(min(last.get(DT_VERDEFNUM, 0), _MAX_VERSIONS)):
            _, flags, index, count, _, first, following = self._unpack("HHHHIII", at, "DT_VERDEF")
            # VER_FLG_BASE names the file itself.
            if count and not flags & 1:
                (name,) = self._unpack("I", at + first, "DT_VERDEF")
                yield index & 0x7FFF, self.text(name)
            at += following
            if not following:
                return
