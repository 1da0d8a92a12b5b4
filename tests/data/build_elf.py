#!/usr/bin/env python3
"""Write the parser fixtures of ``elf/``: odd, broken and hostile files, named for what they are.

Standard library only and the same bytes on each run, so a test can build them again
and compare. ``elf/index.json`` says of each file what a reader should find:

- ``kind``: ``elf``, ``archive`` or ``other``;
- ``entries``: the device-code entries that can be read (``s90`` cubin, ``p80`` PTX,
  ``?16`` of another kind), in order;
- ``malformed``: whether the reader must say that something is wrong. Then ``entries`` is
  the most that can be saved; fewer is fine, more or other ones are not;
- ``why``: the point of the file.
"""

from __future__ import annotations

import argparse
import json
import struct
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).resolve().parent

X86_64, AARCH64, I386, S390, CUDA = 62, 183, 3, 22, 190
REL, EXEC, DYN = 1, 2, 3
PROGBITS, STRTAB, NOBITS = 1, 3, 8
MAGIC = 0xBA55ED50
HUGE = 1 << 63
PTX_TEXT = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry probe()\n{\nret;\n}\n\0"


@dataclass(frozen=True)
class Section:
    """One section: its name, its bytes, and what its header claims where that differs."""

    name: str
    data: bytes
    type: int = PROGBITS
    flags: int = 2
    offset: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class Form:
    """The variable parts of an ELF file's header."""

    machine: int = X86_64
    type: int = DYN
    order: str = "<"
    wide: bool = True
    flags: int = 0
    abi: int = 0
    abi_version: int = 0


def elf(*sections: Section, form: Form | None = None, **claims: int) -> bytes:
    """Return an ELF file; ``claims`` overwrite shoff, shentsize, shnum and shstrndx in its header."""
    form = form or Form()
    order, wide = form.order, form.wide
    names = b"\0" + b"".join(section.name.encode() + b"\0" for section in sections) + b".shstrtab\0"
    everything = [*sections, Section(".shstrtab", names, STRTAB, 0)]
    header_size, entry_size = (64, 64) if wide else (52, 40)
    body, headers = b"", [bytes(entry_size)]
    at_name = 1
    for section in everything:
        body += bytes(-(header_size + len(body)) % 8)
        offset = header_size + len(body) if section.offset is None else section.offset
        size = len(section.data) if section.size is None else section.size
        layout = order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII")
        headers.append(
            struct.pack(layout, at_name, section.type, section.flags, 0, offset, size, 0, 0, 8, 0)
        )
        if section.type != NOBITS:
            body += section.data
        at_name += len(section.name) + 1
    body += bytes(-(header_size + len(body)) % 8)
    value = {
        "shoff": header_size + len(body),
        "shentsize": entry_size,
        "shnum": len(headers),
        "shstrndx": len(headers) - 1,
    } | claims
    ident = b"\x7fELF" + bytes(
        [2 if wide else 1, 1 if order == "<" else 2, 1, form.abi, form.abi_version]
    )
    head = struct.pack(
        order + ("16sHHIQQQIHHHHHH" if wide else "16sHHIIIIIHHHHHH"),
        *(ident, form.type, form.machine, 1, 0, 0, value["shoff"], form.flags, header_size, 0, 0),
        *(value["shentsize"], value["shnum"], value["shstrndx"]),
    )
    return head + body + b"".join(headers)


def cubin(sm: int, *, kernel: str | None = "probe") -> bytes:
    """Return the skeleton of a cubin as CUDA 13 writes it: right header, no instructions."""
    text = [Section(f".text.{kernel}", bytes(16), PROGBITS, 6)] if kernel else []
    form = Form(CUDA, EXEC, flags=0x06000004 | sm << 8, abi=0x41, abi_version=8)
    return elf(Section(".nv.info", bytes(8), 0x70000000, 0), *text, form=form)


def entry(  # the header's fields, each of which some file lies about
    kind: int,
    sm: int,
    payload: bytes,
    *,
    version: tuple[int, int] = (1, 8),
    flags: int = 0x11,
    header: int = 64,
    claimed: int | None = None,
    compressed: int = 0,
    unpacked: int = 0,
    option: int = 0,
    ident: tuple[int, int] = (0, 0),
) -> bytes:
    """Return one fatbin entry, payload padded to eight bytes."""
    payload += bytes(-len(payload) % 8)
    size = len(payload) if claimed is None else claimed
    head = struct.pack(
        "<HHIQIIHHI", kind, 0x101, header, size, compressed, option, *version[::-1], sm
    )
    return head + struct.pack("<IIQQQ", *ident, flags, 0, unpacked) + payload


def container(
    *entries: bytes,
    claimed: int | None = None,
    magic: int = MAGIC,
    version: int = 1,
    header: int = 16,
) -> bytes:
    """Return one fatbin container."""
    body = b"".join(entries)
    return (
        struct.pack("<IHHQ", magic, version, header, len(body) if claimed is None else claimed)
        + body
    )


def fat(data: bytes, **claims: int) -> Section:
    """Return the section that nvcc puts containers in."""
    return Section(".nv_fatbin", data, **claims)


def wrapper(magic: int = 0x466243B1, version: int = 1) -> Section:
    """Return one unrelocated wrapper."""
    name = ".nvFatBinSegment" if magic == 0x466243B1 else ".hipFatBinSegment"
    return Section(name, struct.pack("<IIQQ", magic, version, 0, 0), flags=3)


def member(name: bytes, data: bytes, size: bytes | None = None) -> bytes:
    """Return one member of an ar archive."""
    head = b"%-16b%-12b%-6b%-6b%-8b%-10b`\n" % (
        name,
        b"0",
        b"0",
        b"0",
        b"644",
        size or b"%d" % len(data),
    )
    return head + data + b"\n" * (len(data) % 2)


S90, S80 = entry(2, 90, cubin(90)), entry(2, 80, cubin(80))
P80 = entry(1, 80, PTX_TEXT, version=(8, 0))
STUB75 = entry(2, 75, cubin(75, kernel=None))
GOOD = container(S90, P80)
GOOD_ENTRIES = ["s90", "p80"]
HOST_OBJECT = elf(Section(".text", b"\xc3"), form=Form(type=REL))
DEVICE_OBJECT = elf(Section(".text", b"\xc3"), fat(GOOD), wrapper(), form=Form(type=REL))

Fixture = tuple[bytes, str, list[str], bool, str]


def not_elf() -> dict[str, Fixture]:
    """Files that carry a library's name and are none."""
    script = b"/* GNU ld script */\nOUTPUT_FORMAT(elf64-x86-64)\nGROUP ( libprobe.so.1 AS_NEEDED ( libm.so.6 ) )\n"
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt"), "text")
    lfs = (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123456\n"
    )
    pe = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + bytes(20)
    macho = struct.pack("<IIIIIIII", 0xFEEDFACF, 0x01000007, 3, 6, 0, 0, 0, 0)
    return {
        "gnu-ld-script.so": (script, "other", [], False, "linker script, as libc.so is one"),
        "empty.so": (b"", "other", [], False, "no bytes"),
        "one-byte.so": (b"\x7f", "other", [], False, "shorter than any magic"),
        "zip.so": (packed.getvalue(), "other", [], False, "zip archive"),
        "git-lfs-pointer.so": (lfs, "other", [], False, "pointer in place of the file"),
        "windows.dll": (pe, "other", [], False, "PE header"),
        "macho.dylib": (macho, "other", [], False, "Mach-O header"),
    }


def elf_forms() -> dict[str, Fixture]:
    """ELF headers and section tables, whole and broken."""
    plain = elf(fat(GOOD), wrapper())
    many = [Section(f".s{number}", b"") for number in range(20)]
    none: list[str] = []
    return {
        "plain.so": (plain, "elf", GOOD_ENTRIES, False, "the sound file that the others are variants of"),
        "no-device-code.so": (elf(Section(".text", b"\xc3")), "elf", none, False, "host code alone"),
        "magic-only.so": (b"\x7fELF", "elf", none, True, "nothing after the magic"),
        "truncated-header.so": (plain[:40], "elf", none, True, "cut inside the ELF header"),
        "truncated-sections.so": (plain[:-100], "elf", GOOD_ENTRIES, True, "cut inside the section table"),
        "truncated-fatbin.so": (plain[:600], "elf", ["s90"], True, "cut inside the device code"),
        "bad-class.so": (plain[:4] + b"\7" + plain[5:], "elf", GOOD_ENTRIES, True, "neither 32 nor 64 bit"),
        "elf32.so": (elf(fat(GOOD), form=Form(I386, wide=False)), "elf", GOOD_ENTRIES, False, "32-bit layout"),
        "big-endian.so": (elf(fat(GOOD), form=Form(S390, order=">")), "elf", GOOD_ENTRIES, False, "big-endian ELF around little-endian device code"),
        "aarch64.so": (elf(fat(GOOD), form=Form(AARCH64)), "elf", GOOD_ENTRIES, False, "host of another machine"),
        "no-sections.so": (plain[:40] + bytes(8) + plain[48:60] + bytes(4), "elf", GOOD_ENTRIES, True, "no section table, as after sstrip: not the same as no device code"),
        "no-name-table.so": (elf(fat(GOOD), shstrndx=0), "elf", GOOD_ENTRIES, True, "sections without names: not the same as no device code"),
        "name-table-out-of-range.so": (elf(fat(GOOD), shstrndx=99), "elf", GOOD_ENTRIES, True, "index of the name table past the last section"),
        "entry-size-zero.so": (elf(fat(GOOD), shentsize=0), "elf", GOOD_ENTRIES, True, "section headers of no size"),
        "table-past-end.so": (elf(fat(GOOD), shoff=1 << 40), "elf", GOOD_ENTRIES, True, "section table past the end"),
        "too-many-sections.so": (elf(fat(GOOD), shnum=0xFEFF), "elf", GOOD_ENTRIES, True, "more section headers than the file holds"),
        "extended-numbering.so": (extended(fat(GOOD), *many), "elf", GOOD_ENTRIES, False, "counts kept in section 0, as for over 65,279 sections"),
        "section-past-end.so": (elf(fat(GOOD, offset=1 << 30)), "elf", GOOD_ENTRIES, True, "device code past the end"),
        "section-size-huge.so": (elf(fat(GOOD, size=HUGE)), "elf", GOOD_ENTRIES, True, "device code of 2^63 bytes"),
        "debug-file.so": (elf(Section(".nv_fatbin", GOOD, NOBITS)), "elf", none, False, "split debug file: the section is there, its bytes are not"),
        "wrapper-alone.so": (elf(wrapper()), "elf", none, False, "wrapper without a device-code section"),
        "cubin-skeleton.cubin": (cubin(90), "elf", none, False, "bare cubin"),
    }  # fmt: skip


def extended(*sections: Section) -> bytes:
    """Return an ELF whose section counts stand in section 0."""
    data = bytearray(elf(*sections, shnum=0, shstrndx=0xFFFF))
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<QI", data, table + 32, len(sections) + 2, len(sections) + 1)
    return bytes(data)


def fatbins() -> dict[str, Fixture]:
    """Device code in odd order, and sizes that lie."""
    loop = entry(2, 90, b"", header=0, claimed=0)
    lz4 = 0x2011
    cases: dict[str, tuple[bytes, list[str], bool, str]] = {
        "two-containers": (container(S80) + container(S90), ["s80", "s90"], False, "one after the other"),
        "stub-then-code": (container(STUB75) + container(S90), ["s75", "s90"], False, "nvcc's stub without a kernel comes first"),
        "stub-alone": (container(STUB75), ["s75"], False, "no kernel in it: covers nothing, lacks nothing"),
        "no-entries": (container(), [], False, "container of no entries"),
        "no-containers": (b"", [], False, "section of no bytes"),
        "padded": (bytes(24) + GOOD + bytes(40) + container(S80) + bytes(16), [*GOOD_ENTRIES, "s80"], False, "zeros between containers"),
        "unaligned": (bytes(4) + GOOD, GOOD_ENTRIES, True, "container at an odd multiple of four"),
        "magic-in-payload": (container(entry(2, 90, container(S80)), P80), GOOD_ENTRIES, False, "a container inside a payload is no container"),
        "unknown-kind": (container(entry(16, 90, bytes(8)), S90), ["?16", "s90"], False, "kind nobody has named"),
        "unknown-version": (container(S90, version=2), [], True, "container of another version"),
        "arch-zero": (container(entry(2, 0, bytes(8)), S90), ["s0", "s90"], True, "architecture 0"),
        "arch-huge": (container(entry(2, 0xFFFFFFFF, bytes(8)), S90), ["s4294967295", "s90"], True, "architecture 2^32-1"),
        "both-suffixes": (container(entry(2, 100, cubin(100), flags=0x300011)), ["s100"], True, "marked `a` and `f` at once"),
        "container-past-end": (container(S90, claimed=1 << 20), ["s90"], True, "container longer than its section"),
        "container-2-63": (container(S90, claimed=HUGE), ["s90"], True, "container of 2^63 bytes"),
        "container-2-64": (container(S90, claimed=2**64 - 1), ["s90"], True, "container of 2^64-1 bytes"),
        "container-short": (container(S90, P80, claimed=len(S90) + 20), ["s90"], True, "container ends inside an entry's header"),
        "container-cuts-payload": (container(S90, P80, claimed=len(S90) + 72), ["s90"], True, "container ends inside a payload"),
        "container-zero-then-data": (container(S90, claimed=0), [], True, "container of no bytes with an entry behind it"),
        "header-cut": (struct.pack("<IHH", MAGIC, 1, 16), [], True, "section ends inside a container's header"),
        "entry-endless": (container(loop, S90), [], True, "entry of no length: a walk that trusts it never ends"),
        "entry-wraps": (container(entry(2, 90, b"", claimed=2**64 - 64), S90), [], True, "lengths add up to 2^64, so to nothing"),
        "entry-2-63": (container(entry(2, 90, b"", claimed=HUGE), S90), [], True, "payload of 2^63 bytes"),
        "entry-header-short": (container(entry(2, 90, bytes(64), header=8), S90), [], True, "entry header of 8 bytes"),
        "entry-past-container": (container(entry(2, 90, bytes(8), claimed=4096)) + container(P80), ["p80"], True, "payload runs into the next container"),
        "option-past-end": (container(entry(1, 80, PTX_TEXT, version=(8, 0), option=1 << 30)), ["p80"], True, "option record past the end"),
        "ident-past-end": (container(entry(2, 90, cubin(90), ident=(64, 0xFFFFFFF0))), ["s90"], True, "identifier longer than the file"),
        "unpacked-huge": (container(entry(1, 80, b"\x10a", version=(8, 0), flags=lz4, compressed=2, unpacked=1 << 40)), ["p80"], False, "claims 1 TB once unpacked: never allocate what a header says"),
        "packed-larger": (container(entry(1, 80, b"\x10a", version=(8, 0), flags=lz4, compressed=1 << 20, unpacked=64)), ["p80"], True, "compressed size larger than the payload"),
        "packed-garbage": (container(entry(1, 80, b"\xff" * 32, version=(8, 0), flags=lz4, compressed=32, unpacked=64)), ["p80"], False, "cannot be unpacked; the header is fine"),
        "many-entries": (container(*[entry(2, 90, b"")] * 500), ["s90"] * 500, False, "500 entries without payload"),
    }  # fmt: skip
    made: dict[str, Fixture] = {
        f"fatbin-{name}.so": (elf(fat(data)), "elf", entries, malformed, why)
        for name, (data, entries, malformed, why) in cases.items()
    }
    made["bare-container.fatbin"] = (
        GOOD,
        "other",
        GOOD_ENTRIES,
        False,
        "container without an ELF around it",
    )
    made["relocatable.o"] = (
        elf(Section("__nv_relfatbin", container(S90)), form=Form(type=REL)),
        "elf",
        ["s90"],
        False,
        "relocatable device code",
    )
    return made


def hip() -> dict[str, Fixture]:
    """Code for another vendor's cards."""
    label = b"hipv4-amdgcn-amd-amdhsa--gfx942"
    bundle = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 4096, 8, len(label)) + label
    section = Section(".hip_fatbin", bundle.ljust(4096, b"\0") + b"\x7fELF" + bytes(4))
    segment = wrapper(0x48495046)
    return {
        "hip.so": (elf(section, segment), "elf", [], False, "HIP device code alone"),
        "hip-and-cuda.so": (
            elf(section, segment, fat(GOOD), wrapper()),
            "elf",
            GOOD_ENTRIES,
            False,
            "both vendors",
        ),
    }


def archives() -> dict[str, Fixture]:
    """Archives of objects."""
    magic, long_name = b"!<arch>\n", b"an-object-with-a-name-beyond-sixteen-bytes.o"
    host, device = member(b"host.o/", HOST_OBJECT), member(b"device.o/", DEVICE_OBJECT)
    names = member(b"//", long_name + b"/\nhost-with-a-long-name-too.o/\n")
    second = b"/%d" % (len(long_name) + 2)
    symbols = member(b"/", struct.pack(">II", 1, 8 + 60 + 16) + b"probe\0\0\0")
    bsd = member(b"#1/%d" % len(long_name), long_name + DEVICE_OBJECT)
    thin = b"!<thin>\n" + member(b"//", b"plain.so/\nmissing.o/\n")
    thin += b"%-16b%-12b%-6b%-6b%-8b%-10d`\n" % (
        b"/0",
        b"0",
        b"0",
        b"0",
        b"644",
        len(elf(fat(GOOD), wrapper())),
    )
    thin += b"%-16b%-12b%-6b%-6b%-8b%-10d`\n" % (b"/10", b"0", b"0", b"0", b"644", 100)
    return {
        "two-members.a": (magic + host + device, "archive", GOOD_ENTRIES, False, "one of two members has device code"),
        "symbol-table.a": (magic + symbols + host + device, "archive", GOOD_ENTRIES, False, "with the index that ranlib writes"),
        "gnu-long-names.a": (magic + names + member(b"/0", DEVICE_OBJECT) + member(second, HOST_OBJECT), "archive", GOOD_ENTRIES, False, "names in a table of their own"),
        "bsd-long-name.a": (magic + bsd, "archive", GOOD_ENTRIES, False, "name before the member's bytes"),
        "odd-member.a": (magic + member(b"odd.txt/", b"odd") + device, "archive", GOOD_ENTRIES, False, "padding after an odd length"),
        "thin.a": (thin, "archive", [], False, "members are other files, one of them missing; entries if they are followed"),
        "empty.a": (magic, "archive", [], False, "no members"),
        "truncated.a": (magic + host + device[:200], "archive", [], True, "cut inside a member"),
        "size-not-a-number.a": (magic + member(b"device.o/", DEVICE_OBJECT, b"12x"), "archive", [], True, "member's length is no number"),
        "size-negative.a": (magic + member(b"device.o/", DEVICE_OBJECT, b"-60"), "archive", [], True, "negative length: a walk that trusts it never ends"),
        "size-huge.a": (magic + member(b"device.o/", DEVICE_OBJECT, b"9999999999"), "archive", [], True, "member longer than the file"),
        "long-name-out-of-range.a": (magic + names + member(b"/9999", DEVICE_OBJECT), "archive", GOOD_ENTRIES, True, "name past the end of the table"),
    }  # fmt: skip


def fixtures() -> dict[str, Fixture]:
    """Return every file by name."""
    return not_elf() | elf_forms() | fatbins() | hip() | archives()


def main() -> int:
    """Write the files and their index."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE / "elf")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    index = {}
    for name, (data, kind, entries, malformed, why) in sorted(fixtures().items()):
        (options.out / name).write_bytes(data)
        index[name] = {"kind": kind, "entries": entries, "malformed": malformed, "why": why}
    lines = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in index.items()]
    (options.out / "index.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
