"""What a kernel takes from its card: registers, stack and shared memory, read from its cubin.

Registers and stack stand in `.nv.info`, whose attributes are u8 format (4: a length
follows), u8 attribute, u16 value or length; those read here hold a symbol and a number.
Static shared memory is the size of `.nv.shared.KERNEL`. From sm_90 up that section also
holds the 1 KiB that the driver reserves for itself, which no limit of a card counts. Compared
with `ptxas -v` of CUDA 12.4 to 13.3 for sm_75 to sm_120. The blocks of a cluster are three u32 of
`.nv.info.KERNEL`, EIATTR_CTA_PER_CLUSTER in the words of cuobjdump 13.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.core.sm import Sm
from envcheck.guest.cubin import code_of_cubin
from envcheck.guest.elf import Buffer, Elf, Malformed

_SIZED = 4
_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS = 0x11, 0x12, 0x2F
_CLUSTER = 0x3D
_SYMBOL = struct.Struct("<I20x")
_RESERVED, _FIRST_RESERVED = 1024, 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Of one kernel."""

    registers: int
    """For each thread."""
    stack_bytes: int
    """For each thread: spilled registers, and arrays that found no registers."""
    static_shared: int
    """Bytes for each block, without what the launch asks for."""
    cluster_blocks: int = 1
    """Blocks of a cluster that the kernel fixes itself; 1 without."""


def resources_of(buffer: Buffer, elf: Elf, kernel: str) -> Resources:
    """Read what one kernel takes; raises Malformed where the cubin does not tell."""
    found: dict[int, int] = {}
    index = _symbol(buffer, elf, kernel)
    for attribute, value in _attributes(buffer, elf, ".nv.info"):
        if len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            if symbol == index:
                found[attribute] = max(number, found.get(attribute, 0))
    if _REGISTERS not in found:
        message = f"cubin .nv.info: no registers of {kernel}"
        raise Malformed(message)
    shared = elf.find(f".nv.shared.{kernel}")
    size = 0 if shared is None else shared.size
    number = Sm.parse(code_of_cubin(buffer, elf).sm).number
    reserved = _RESERVED if number >= _FIRST_RESERVED else 0
    return Resources(
        registers=found[_REGISTERS],
        stack_bytes=max(found.get(_FRAME_SIZE, 0), found.get(_MIN_STACK_SIZE, 0)),
        static_shared=max(size - reserved, 0),
        cluster_blocks=_cluster_blocks(buffer, elf, kernel),
    )


def _cluster_blocks(buffer: Buffer, elf: Elf, kernel: str) -> int:
    for attribute, value in _attributes(buffer, elf, f".nv.info.{kernel}"):
        if attribute == _CLUSTER and len(value) == 12:
            return math.prod(struct.unpack("<III", value))
    return 1


def _attributes(buffer: Buffer, elf: Elf, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of a section's sized attributes."""
    section = elf.find(name)
    if section is None:
        return
    at, end = elf.content(section)
    while at + 4 <= end:
        form, attribute, value = struct.unpack_from("<BBH", buffer, at)
        at += 4
        if form == _SIZED:
            if at + value <= end:
                yield attribute, bytes(buffer[at : at + value])
            at += value


def _symbol(buffer: Buffer, elf: Elf, name: str) -> int:
    """Return a symbol's index; raises Malformed when there is none of that name."""
    table = elf.find(".symtab")
    if table is None or not 0 < table.link < len(elf.sections):
        message = "cubin .symtab: missing"
        raise Malformed(message)
    names, stop = elf.content(elf.sections[table.link])
    begin, end = elf.content(table)
    wanted = name.encode() + b"\0"
    for index, at in enumerate(range(begin, end - _SYMBOL.size + 1, _SYMBOL.size)):
        (offset,) = _SYMBOL.unpack_from(buffer, at)
        start = names + offset
        if start + len(wanted) <= stop and buffer[start : start + len(wanted)] == wanted:
            return index
    message = f"cubin .symtab: no {name}"
    raise Malformed(message)
