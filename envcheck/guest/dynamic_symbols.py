"""The dynamic symbols of one file: what it wants, and whether it exports a name, by hash.

A library such as libtorch_cpu.so exports hundreds of thousands of names. The loader finds one
by a hash table in the file, and so does this: nothing is read that is not asked for, and the
counts of the file are bounds for nothing. Matching of versions follows glibc's
`check_match` (elf/dl-lookup.c).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.guest.dynamic import (
    DT_GNU_HASH,
    DT_HASH,
    DT_JMPREL,
    DT_PLTRELSZ,
    DT_REL,
    DT_RELA,
    DT_RELASZ,
    DT_RELSZ,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMTAB,
    DT_VERSYM,
    Dynamic,
)
from envcheck.guest.elf import Buffer, Malformed
from envcheck.guest.elf import read as read_sections

_STB_WEAK = 2
_EXPORTED_BINDINGS = (1, 2, 10)  # global, weak, and unique among all libraries
_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1
_STT_TLS = 6
_SHT_DYNSYM = 11
_MAX_NAME = 1 << 14
# The most that is known to be wanted by one file is some ten thousand.
_MAX_SYMBOLS = 1 << 18
# The longest chain of a table that a linker wrote is some dozen.
_MAX_CHAIN = 1 << 12
# What `unpack_from` raises for a place that is not in the file, or that no file could have.
_PAST_END = (struct.error, OverflowError)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One symbol that a file leaves to others."""

    name: bytes
    version: str | None
    file: str | None
    """The soname that the version is wanted of."""
    weak: bool
    index: int


def gnu_hash(name: bytes) -> int:
    """Return the hash of `.gnu.hash`."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    """Return the hash of `.hash`."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


class Symbols:
    """The symbol tables of one mapped file."""

    def __init__(self, buffer: Buffer, dynamic: Dynamic) -> None:
        self.buffer, self.dynamic = buffer, dynamic
        tables, endian = dynamic.tables, dynamic.endian
        self.wide = dynamic.bits == 64
        self.strings = tables.get(DT_STRTAB, 0)
        self.strings_end = self.strings + tables.get(DT_STRSZ, 0)
        self.table = tables.get(DT_SYMTAB)
        self.versions = tables.get(DT_VERSYM)
        self.symbol = struct.Struct(endian + ("IBBHQQ" if self.wide else "IIIBBH"))
        self.word, self.half = struct.Struct(endian + "I"), struct.Struct(endian + "H")
        self.bloom_word = struct.Struct(endian + ("Q" if self.wide else "I"))
        self.gnu = tables.get(DT_GNU_HASH)
        self.sysv = tables.get(DT_HASH)
        self.needs = {need.index: need for need in dynamic.needs}
        self.head = (0, 0, 0, 0)
        if self.gnu is not None:
            try:
                self.head = struct.unpack_from(endian + "IIII", buffer, self.gnu)
            except _PAST_END:
                self.gnu = None

    def _fields(self, index: int) -> tuple[int, int, int, int]:
        """Return (name, info, section, value) of one symbol; raises struct.error past the end."""
        at = (self.table or 0) + index * self.symbol.size
        if self.wide:
            name, info, _, section, value, _ = self.symbol.unpack_from(self.buffer, at)
        else:
            name, value, _, info, _, section = self.symbol.unpack_from(self.buffer, at)
        return name, info, section, value

    def _name(self, offset: int) -> bytes:
        begin = self.strings + offset
        stop = min(self.strings_end, begin + _MAX_NAME)
        end = self.buffer.find(b"\0", begin, stop)
        return bytes(self.buffer[begin : stop if end < 0 else end])

    def _version_index(self, index: int) -> int:
        if self.versions is None:
            return 1
        value: int = self.half.unpack_from(self.buffer, self.versions + 2 * index)[0]
        return value

    def count(self) -> int:
        """Return how many symbols there are to look through for those that are wanted."""
        if self.table is None:
            return 0
        most = min((len(self.buffer) - self.table) // self.symbol.size, _MAX_SYMBOLS)
        if self.sysv is not None and self.sysv + 8 <= len(self.buffer):
            # nchain is the number of symbols.
            return min(most, int(self.word.unpack_from(self.buffer, self.sysv + 4)[0]))
        # What is hashed is exported and stands last; programs have weak ones among it.
        if self.gnu is not None and not self.dynamic.interpreter and self._hashes_something():
            return min(most, self.head[1])
        try:
            sections = read_sections(self.buffer).sections
        except Malformed:
            sections = ()
        size = next((s.size for s in sections if s.kind == _SHT_DYNSYM), None)
        if size is None:
            size = max(self.strings - self.table, 0)
        return min(most, size // self.symbol.size)

    def _hashes_something(self) -> bool:
        """Say whether `.gnu.hash` is not empty; an empty one does not say where symbols end."""
        buckets, _, words, _ = self.head
        if buckets > 4:
            return True
        table = (self.gnu or 0) + 16 + words * self.bloom_word.size
        held = bytes(self.buffer[table : table + 4 * buckets])
        return any(held)

    def wanted(self) -> Iterator[Wanted]:
        """Yield the symbols that others have to provide."""
        for index in range(1, self.count()):
            try:
                name, info, section, _ = self._fields(index)
                if section != _SHN_UNDEF or info >> 4 not in _EXPORTED_BINDINGS:
                    continue
                need = self.needs.get(self._version_index(index) & 0x7FFF)
            except _PAST_END:
                return
            yield Wanted(
                self._name(name),
                need.name if need else None,
                need.file if need else None,
                info >> 4 == _STB_WEAK or (need is not None and need.weak),
                index,
            )

    def exports(self, name: bytes, version: str | None = None, hashed: int | None = None) -> bool:
        """Say whether the loader would find a name of that version in this file."""
        try:
            found = self._hashed(name, hashed) if self.gnu is not None else self._chained(name)
            defaults = 0
            for index in found:
                match = self._matches(index, version)
                if match:
                    return True
                defaults += match is None
        except _PAST_END:
            return False
        # Without a version wanted, a name with one default version is that one.
        return version is None and defaults == 1

    def _matches(self, index: int, version: str | None) -> bool | None:
        """Say whether the version of a symbol fits; None for a default nobody asked for by name."""
        if self.versions is None:
            return True
        raw = self._version_index(index)
        number, hidden = raw & 0x7FFF, bool(raw & 0x8000)
        if version is None:
            if number < 3:
                return True
            return False if hidden else None
        own = self.dynamic.definitions.get(number)
        # One without a version of its own serves every version that is wanted.
        return own == version or (own is None and number < 2 and not hidden)

    def _defined(self, index: int, name: bytes) -> bool:
        offset, info, section, value = self._fields(index)
        if section == _SHN_UNDEF or info >> 4 not in _EXPORTED_BINDINGS:
            return False
        if value == 0 and section != _SHN_ABS and info & 15 != _STT_TLS:
            return False
        begin = self.strings + offset
        return bytes(self.buffer[begin : begin + len(name) + 1]) == name + b"\0"

    def _hashed(self, name: bytes, hashed: int | None) -> Iterator[int]:
        """Yield the indexes of exported symbols of a name, by `.gnu.hash`."""
        buckets, first, words, shift = self.head
        if not buckets or not words or self.gnu is None:
            return
        value = gnu_hash(name) if hashed is None else hashed
        size = self.bloom_word.size
        bits = size * 8
        bloom = self.gnu + 16
        (word,) = self.bloom_word.unpack_from(self.buffer, bloom + (value // bits) % words * size)
        if not (word >> (value % bits)) & (word >> ((value >> shift) % bits)) & 1:
            return
        table = bloom + words * size
        (index,) = self.word.unpack_from(self.buffer, table + value % buckets * 4)
        if index < first:
            return
        chain = table + buckets * 4
        for number in range(index, index + _MAX_CHAIN):
            (entry,) = self.word.unpack_from(self.buffer, chain + (number - first) * 4)
            if entry | 1 == value | 1 and self._defined(number, name):
                yield number
            if entry & 1:
                return

    def _chained(self, name: bytes) -> Iterator[int]:
        """Yield the indexes of exported symbols of a name, by `.hash`."""
        if self.sysv is None:
            return
        buckets, _ = struct.unpack_from(self.dynamic.endian + "II", self.buffer, self.sysv)
        if not buckets:
            return
        table = self.sysv + 8
        (index,) = self.word.unpack_from(self.buffer, table + sysv_hash(name) % buckets * 4)
        for _ in range(_MAX_CHAIN):
            if not index:
                return
            if self._defined(index, name):
                yield index
            (index,) = self.word.unpack_from(self.buffer, table + (buckets + index) * 4)

    def beginning_with(self, prefix: bytes, most: int = 8) -> list[bytes]:
        """Return exported names that begin so, searched in the text of the string table."""
        found: list[bytes] = []
        at = self.strings
        for _ in range(1 << 16):
            at = self.buffer.find(b"\0" + prefix, at, self.strings_end)
            if at < 0 or len(found) == most:
                break
            name = self._name(at + 1 - self.strings)
            if name not in found and self.exports_any(name):
                found.append(name)
            at += 1
        return found

    def exports_any(self, name: bytes) -> bool:
        """Say whether a name is exported, of whatever version."""
        try:
            found = self._hashed(name, None) if self.gnu is not None else self._chained(name)
            return next(found, None) is not None
        except _PAST_END:
            return False

    def relocated(self, indexes: set[int]) -> set[int]:
        """Return those of the symbols that a relocation names: the loader looks up no other."""
        tables, found = self.dynamic.tables, set()
        width, shift = (24, 32) if self.wide else (12, 8)
        short = width - (8 if self.wide else 4)
        plain = struct.Struct(self.dynamic.endian + ("QQ" if self.wide else "II"))
        plt_width = width if DT_RELA in tables or self.wide else short
        for place, size, step in (
            (tables.get(DT_RELA), tables.get(DT_RELASZ, 0), width),
            (tables.get(DT_REL), tables.get(DT_RELSZ, 0), short),
            (tables.get(DT_JMPREL), tables.get(DT_PLTRELSZ, 0), plt_width),
        ):
            if place is None:
                continue
            for at in range(place, min(place + size, len(self.buffer) - step + 1), step):
                index = plain.unpack_from(self.buffer, at)[1] >> shift
                if index in indexes:
                    found.add(index)
        return found
