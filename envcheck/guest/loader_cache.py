"""`/etc/ld.so.cache`, as glibc reads it (sysdeps/generic/dl-cache.h, elf/dl-cache.c).

Only the new format counts, alone or behind the old one: glibc writes no other since 2.32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_OLD, _NEW = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = 48, 24
_EXTENSION_MAGIC = 0xEAA42174
_TAG_HWCAPS = 1
_HWCAP_EXTENSION = 1 << 62
_MAX_ENTRIES = 1 << 20
_MAX_NAME = 4096

# e_machine -> flags of an entry (FLAG_ELF_LIBC6 with that of the ABI).
FLAGS = {62: 0x0303, 183: 0x0A03, 3: 0x0003}


@dataclass(frozen=True, slots=True)
class Entry:
    """One library of the cache."""

    path: str
    flags: int
    hwcaps: str | None
    """The subfolder of glibc-hwcaps that it is for, such as `x86-64-v3`."""


def parse(data: bytes) -> dict[str, list[Entry]]:
    """Return the libraries by name, in the order of the file; empty where it is no cache."""
    try:
        return _parse(data)
    except (struct.error, IndexError, ValueError):
        return {}


def _parse(data: bytes) -> dict[str, list[Entry]]:
    start = 0
    if data.startswith(_OLD):
        (count,) = struct.unpack_from("=I", data, 12)
        start = -(-(16 + count * 12) // 8) * 8
    if data[start : start + len(_NEW)] != _NEW:
        return {}
    count, _, flags, extension = struct.unpack_from("=IIB3xI", data, start + 20)
    # 0 for what did not say yet, 2 for little endian, 3 for big.
    order = ">" if flags & 3 == 3 else "<"
    if order == ">":
        count, _, _, extension = struct.unpack_from(">IIB3xI", data, start + 20)
    names = _hwcaps(data, start, extension, order)
    found: dict[str, list[Entry]] = {}
    for number in range(min(count, _MAX_ENTRIES)):
        at = start + _HEADER + number * _ENTRY
        kind, key, value, _, hwcap = struct.unpack_from(order + "iIIIQ", data, at)
        if hwcap & _HWCAP_EXTENSION:
            hardware = names.get(hwcap & 0xFFFFFFFF)
            if hardware is None:
                continue
        elif hwcap:
            # Bits of processors of the years before glibc 2.33.
            continue
        else:
            hardware = None
        name = _text(data, start + key)
        found.setdefault(name, []).append(Entry(_text(data, start + value), kind, hardware))
    return found


def _hwcaps(data: bytes, start: int, extension: int, order: str) -> dict[int, str]:
    """Return the names of the hwcaps subfolders, by index."""
    if not extension:
        return {}
    magic, count = struct.unpack_from(order + "II", data, start + extension)
    if magic != _EXTENSION_MAGIC:
        return {}
    for number in range(min(count, 64)):
        at = start + extension + 8 + number * 16
        tag, _, offset, size = struct.unpack_from(order + "IIII", data, at)
        if tag == _TAG_HWCAPS:
            places = struct.unpack_from(f"{order}{min(size, 4096) // 4}I", data, start + offset)
            return {index: _text(data, start + place) for index, place in enumerate(places)}
    return {}


def _text(data: bytes, at: int) -> str:
    end = data.index(b"\0", at, at + _MAX_NAME)
    return data[at:end].decode("utf-8", "surrogateescape")
