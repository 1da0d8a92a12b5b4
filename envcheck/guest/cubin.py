"""Bare cubins and PTX texts: which SM they are for, and which kernels they hold.

Where a cubin keeps its SM depends on its ELF ABI version, not on the SM: version 7 (CUDA
11.7 to 12.9, up to sm_90a) or version 8 (12.8 and 12.9 from sm_100 up, 13.0 and later for
all). Measured with 17 versions of ptxas over every SM that each of them knows; the flag
names are LLVM's (EF_CUDA_SM, EF_CUDA_ACCELERATORS).
"""

from __future__ import annotations

import re
import struct

from envcheck.core.model import Code
from envcheck.core.sm import Sm
from envcheck.guest.elf import Buffer, Elf, Malformed

_ABI_7, _ABI_8 = 7, 8
_ATTRIBUTE_ACCELERATOR_TARGET = 9
_SHT_SYMTAB, _STT_FUNC, _STO_CUDA_ENTRY = 2, 2, 0x10
_SYMBOL = struct.Struct("<IBBH16x")  # name, info, other, section index; value and size unread
_ARCH_NOTE = re.compile(rb"-arch\s+sm_(\d{2,3})([af]?)\b")
_PTX_VERSION = re.compile(r"(?<![\w.])\.version\s+(\d{1,3})\.(\d{1,3})\b")
_PTX_TARGET = re.compile(r"(?<![\w.])\.target\s+(sm_\d{2,3}[af]?)\b")
_PTX_ENTRY = re.compile(rb"\.entry\s+([\w$%]+)")
_PTX_FUNCTION = re.compile(rb"\.(entry|func)\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def code_of_cubin(buffer: Buffer, elf: Elf) -> Code:
    """Return the SM that a cubin is for; raises Malformed for an unknown ABI version."""
    if elf.abi_version == _ABI_7:
        number, suffix = elf.flags & 0xFF, "a" if elf.flags & 0x800 else ""
    elif elf.abi_version == _ABI_8:
        number = elf.flags >> 8 & 0xFF
        suffix = _abi_8_suffix(buffer, elf, number)
    else:
        message = f"cubin e_ident[8]: ABI version {elf.abi_version} is not known"
        raise Malformed(message)
    if number < 10:
        message = f"cubin e_flags {elf.flags:#x}: SM number {number}"
        raise Malformed(message)
    return Code(kind="sass", sm=str(Sm(number, suffix)))


def _abi_8_suffix(buffer: Buffer, elf: Elf, number: int) -> str:
    # CUDA 12.8 and 12.9 set a flag, 13.0 and later an attribute; `f` stands only in the note.
    if elf.flags & 0x8 or _accelerator_target(buffer, elf):
        return "a"
    note = elf.find(".note.nv.tkinfo")
    if note is not None:
        begin, end = elf.content(note)
        match = _ARCH_NOTE.search(bytes(buffer[begin:end]))
        if match is not None and Sm(int(match[1])).silicon == Sm(number).silicon:
            return match[2].decode()
    return ""


def _accelerator_target(buffer: Buffer, elf: Elf) -> bool:
    """Read attribute 9 of `.nv.compat`: u8 format, u8 attribute, u16 value or length."""
    section = elf.find(".nv.compat")
    if section is None:
        return False
    at, end = elf.content(section)
    while at + 4 <= end:
        form, attribute, value = struct.unpack_from("<BBH", buffer, at)
        if attribute == _ATTRIBUTE_ACCELERATOR_TARGET:
            return bool(value & 0xFF) if form != 4 else False
        at += 4 + (value if form == 4 else 0)
    return False


def has_code(elf: Elf) -> bool:
    """Say whether a cubin holds any function: a link stub has no `.text.NAME` section."""
    return any(s.name.startswith(".text.") and s.size for s in elf.sections)


def cubin_kernels(buffer: Buffer, elf: Elf) -> tuple[str, ...]:
    """Return the mangled names of the kernels; raises Malformed.

    Device functions have a `.text.NAME` section too; the flag STO_CUDA_ENTRY of the symbol
    is what makes a kernel (checked against cuobjdump's symbol listing).
    """
    table = next((s for s in elf.sections if s.kind == _SHT_SYMTAB), None)
    if table is None or not 0 < table.link < len(elf.sections):
        return ()
    names, stop = elf.content(elf.sections[table.link])
    begin, end = elf.content(table)
    found = []
    for at in range(begin, end - _SYMBOL.size + 1, _SYMBOL.size):
        offset, info, other, section = _SYMBOL.unpack_from(buffer, at)
        if (
            info & 0xF == _STT_FUNC
            and other & _STO_CUDA_ENTRY
            and section
            and names + offset < stop
        ):
            until = buffer.find(b"\0", names + offset, stop)
            found.append(
                bytes(buffer[names + offset : max(until, names + offset)]).decode(
                    "utf-8", "replace"
                )
            )
    return tuple(found)


def code_of_ptx(text: str) -> Code:
    """Return ISA version and target of a PTX text; raises Malformed without either line."""
    bare = _COMMENT.sub(" ", text)
    version, target = _PTX_VERSION.search(bare), _PTX_TARGET.search(bare)
    if version is None or target is None:
        message = f"PTX text: no {'.version' if version is None else '.target'} directive"
        raise Malformed(message)
    isa = f"{int(version[1])}.{int(version[2])}"
    return Code(kind="ptx", sm=str(Sm.parse(target[1])), isa=isa)


def ptx_has_code(text: bytes) -> bool:
    """Say whether a PTX text defines any function; a stub has directives alone."""
    return _PTX_FUNCTION.search(text) is not None


def ptx_kernels(text: bytes) -> tuple[str, ...]:
    """Return the mangled names of the `.entry` functions."""
    return tuple(name.decode("ascii", "replace") for name in _PTX_ENTRY.findall(text))
