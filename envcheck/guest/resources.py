"""What a kernel takes from its card: registers, stack and shared memory, read from its cubin.

Registers and stack stand in `.nv.info`, whose attributes are u8 format (4: a length
follows), u8 attribute, u16 value or length; those read here hold a symbol and a number.
Static shared memory is the size of `.nv.shared.KERNEL`. From sm_90 up that section also
holds the 1 KiB that the driver reserves for itself, which no limit of a card counts. Compared
with `ptxas -v` of CUDA 12.4 to 13.3 for sm_75 to sm_120.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.core.sm import Sm
from envcheck.guest.cubin import code_of_cubin
from envcheck.guest.elf import Buffer, Elf, Malformed

_SIZED = 4
_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS = 0x11, 0x12, 0x2F
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


def resources_of(buffer: Buffer, elf: Elf, kernel: str) -> Resources:
    """Read what one kernel takes; raises Malformed where the cubin does not tell."""
    found: dict[int, int] = {}
    index = _symbol(buffer, elf, kernel)
    for attribute, symbol, number in _attributes(buffer, elf):
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
    )


def _attributes(buffer: Buffer, elf: Elf) -> Iterator[tuple[int, int, int]]:
    """Yield attribute, symbol and number of `.nv.info`."""
    section = elf.find(".nv.info")
    if section is None:
        return
    at, end = elf.content(section)
    while at + 4 <= end:
        form, attribute, value = struct.unpack_from("<BBH", buffer, at)
        at += 4
        if form == _SIZED:
            if value == 8 and at + 8 <= end:
                yield attribute, *struct.unpack_from("<II", buffer, at)
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
