"""Bare cubins and PTX texts: which SM they are for, and which kernels they hold.

Where a cubin keeps its SM depends on its ELF ABI version, not on the SM: version 7 (CUDA
11.7 to 12.9, up to sm_90a) or version 8 (12.8 and 12.9 from sm_100 up, 13.0 and later for
all). Measured with 17 versions of ptxas over every SM that each of them knows; the flag
names are LLVM's (EF_CUDA_SM, EF_CUDA_ACCELERATORS).
"""

from __future__ import annotations

import re
import struct

from envcheck.core.device_file import Code
from envcheck.core.sm import Sm
from envcheck.guest.elf import EM_CUDA, MAGIC, Buffer, Elf, Malformed

_NOTE_HEADER = 12
_ABI_7, _ABI_8 = 7, 8
_HEADER = struct.Struct("<4sB3xB9xH28xI")  # magic, class, ABI version, machine, flags
_ATTRIBUTE_ACCELERATOR_TARGET = 9
_SHT_SYMTAB, _STT_FUNC, _STO_CUDA_ENTRY = 2, 2, 0x10
_MAX_SYMBOL, _MAX_SYMBOLS = 1 << 14, 1 << 26
_SYMBOL = struct.Struct("<IBBH16x")  # name, info, other, section index; value and size unread
_ARCH_NOTE = re.compile(rb"-arch\s+sm_(\d{2,3})([af]?)\b")
_SPACE = re.compile(rb"\s*")
_PTX_WORDS = {
    ".version": re.compile(rb"(\d{1,3})\.(\d{1,3})\b"),
    ".target": re.compile(rb"sm_\d{2,3}[af]?\b"),
}
_PTX_ENTRY = re.compile(rb"\.entry\s+([\w$%]+)")
_PTX_FUNCTION = re.compile(rb"\.(entry|func)\b")
# A comment without an end runs to the end of the text, so that the search stays linear.
_COMMENT = re.compile(rb'("[^"\n]*")|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)


def code_of_cubin(buffer: Buffer, elf: Elf) -> Code:
    """Return the SM that a cubin is for; raises Malformed for an unknown ABI version."""
    number = _number(elf.abi_version, elf.flags)
    if number is None:
        message = f"cubin e_ident[8]: ABI version {elf.abi_version} is not known"
        raise Malformed(message)
    if number < 10:
        message = f"cubin e_flags {elf.flags:#x}: SM number {number}"
        raise Malformed(message)
    if elf.abi_version == _ABI_7:
        suffix = "a" if elf.flags & 0x800 else ""
    else:
        suffix = _abi_8_suffix(buffer, elf, number)
    return Code(kind="sass", sm=str(Sm(number, suffix)))


def _number(abi: int, flags: int) -> int | None:
    if abi == _ABI_7:
        return flags & 0xFF
    return flags >> 8 & 0xFF if abi == _ABI_8 else None


def check_cubin(buffer: Buffer, at: int, size: int, code: Code) -> None:
    """Raise Malformed for the payload of a fatbin entry that is no cubin for its SM.

    A driver chooses by the entry's header and then refuses such a payload. Between `sm_90` and
    `sm_90a` it does not look (an H200 runs both ways), so neither does this.
    """
    if size < _HEADER.size:
        message = f"fatbin payload at {at}: {size} bytes are no cubin"
        raise Malformed(message)
    magic, bits, abi, machine, flags = _HEADER.unpack_from(buffer, at)
    if magic != MAGIC or machine != EM_CUDA:
        message = f"fatbin payload at {at}: not a cubin"
        raise Malformed(message)
    number = _number(abi, flags) if bits == 2 else None
    if number is not None and Sm(number).silicon != Sm.parse(code.sm).silicon:
        message = f"fatbin payload at {at}: a cubin for sm_{number} where the entry says {code.sm}"
        raise Malformed(message)


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


def toolkit(buffer: Buffer, elf: Elf) -> str | None:
    """Return the CUDA release that made a cubin, such as `12.8`; None where it does not say.

    ABI version 7 has it in e_version, 8 in `.note.nv.cuinfo`, two bytes at offset 4 of its
    description, from CUDA 13.0 on.
    """
    number = elf.version if elf.abi_version == _ABI_7 else 0
    note = elf.find(".note.nv.cuinfo")
    if elf.abi_version == _ABI_8 and note is not None:
        begin, end = elf.content(note)
        if end - begin >= _NOTE_HEADER:
            name, _, _ = struct.unpack_from("<III", buffer, begin)
            at = begin + 12 + (min(name, end - begin) + 3 & ~3) + 4
            number = int.from_bytes(buffer[at : at + 2], "little") if at + 2 <= end else 0
    return f"{number // 10}.{number % 10}" if 100 <= number <= 999 else None


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
    found, total = [], 0
    for at in range(begin, end - _SYMBOL.size + 1, _SYMBOL.size):
        offset, info, other, section = _SYMBOL.unpack_from(buffer, at)
        name = names + offset
        if info & 0xF == _STT_FUNC and other & _STO_CUDA_ENTRY and section and name < stop:
            until = buffer.find(b"\0", name, min(stop, name + _MAX_SYMBOL))
            found.append(bytes(buffer[name : max(until, name)]).decode("utf-8", "replace"))
            total += len(found[-1])
            if total > _MAX_SYMBOLS:
                message = f"cubin .symtab: names of more than {_MAX_SYMBOLS} bytes"
                raise Malformed(message)
    return tuple(found)


def code_of_ptx(text: bytes) -> Code:
    """Return ISA version and target of a PTX text; raises Malformed.

    The two directives come first and in that order. A driver refuses a text that starts with
    anything else, be it a byte order mark.
    """
    version, at = _directive(text, 0, ".version")
    target, _ = _directive(text, at, ".target")
    isa = f"{int(version[1])}.{int(version[2])}"
    return Code(kind="ptx", sm=target[0].decode(), isa=isa)


def _directive(text: bytes, at: int, word: str) -> tuple[re.Match[bytes], int]:
    """Return what follows a directive that must come next, and where it ends; raises Malformed."""
    begin = _skip(text, at)
    end = begin + len(word)
    found = _PTX_WORDS[word].match(text, _skip(text, end))
    if text[begin:end] != word.encode() or found is None or found.start() == end:
        message = f"PTX text: no {word} " + ("after .version" if at else "at its start")
        raise Malformed(message)
    return found, found.end()


def _skip(text: bytes, at: int) -> int:
    """Return where white space and comments end; a comment without an end takes all."""
    while True:
        space = _SPACE.match(text, at)
        at = at if space is None else space.end()
        if text.startswith(b"//", at):
            end = text.find(b"\n", at)
        elif text.startswith(b"/*", at):
            end = text.find(b"*/", at + 2) + 1 or -1
        else:
            return at
        at = len(text) if end < 0 else end + 1


def check_ptx(text: bytes, at: int, code: Code) -> None:
    """Raise Malformed for the payload of a fatbin entry that is no PTX of its SM and ISA.

    A driver chooses by the entry's header and then compiles what the text says.
    """
    found = code_of_ptx(text)
    if found.isa != code.isa or Sm.parse(found.sm).silicon != Sm.parse(code.sm).silicon:
        is_, said = (f"PTX {c.isa} for {c.sm}" for c in (found, code))
        message = f"fatbin payload at {at}: {is_} where the entry says {said}"
        raise Malformed(message)


def ptx_has_code(text: bytes) -> bool:
    """Say whether a PTX text defines any function; a stub has directives alone."""
    # Most stubs are told without taking the comments out.
    return bool(_PTX_FUNCTION.search(text) and _PTX_FUNCTION.search(_bare(text)))


def ptx_kernels(text: bytes) -> tuple[str, ...]:
    """Return the mangled names of the `.entry` functions."""
    return tuple(name.decode("ascii", "replace") for name in _PTX_ENTRY.findall(_bare(text)))


def _bare(text: bytes) -> bytes:
    return _COMMENT.sub(rb"\1 ", text)
