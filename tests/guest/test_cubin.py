"""Bare cubins and PTX texts: which SM they are for, and which functions are kernels."""

from __future__ import annotations

import re
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from build_elf import Form, Section, elf
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from inventories import DATA

from envcheck.core.device_file import Code
from envcheck.guest import cubin
from envcheck.guest import elf as reader
from envcheck.guest.elf import Malformed

CUBINS = sorted(p for f in ("truth", "truth-extra") for p in (DATA / f / "objects").glob("*.cubin"))


def code(data: bytes) -> Code:
    return cubin.code_of_cubin(data, reader.read(data))


# The name says which toolkit was asked for which target: cu12.4__rawsass_90a.cubin.
@pytest.mark.parametrize("path", CUBINS, ids=[p.stem for p in CUBINS])
def test_a_cubin_is_for_the_target_that_was_asked_for(path: Path) -> None:
    asked = re.search(r"_(\d+[af]?)$", path.stem)
    assert asked is not None
    assert code(path.read_bytes()).sm == f"sm_{asked[1]}"


def test_the_cubins_cover_both_abi_versions_and_every_suffix() -> None:
    versions = {p: reader.read(p.read_bytes()).abi_version for p in CUBINS}
    assert set(versions.values()) == {7, 8}
    # CUDA 12.8 writes either, by SM; that is why the SM cannot tell the version.
    assert {v for p, v in versions.items() if p.name.startswith("cu12.8")} == {7, 8}
    assert {p.stem[-1] for p in CUBINS} >= {"a", "f"}


def made(flags: int, abi: int, *sections: Section) -> bytes:
    return elf(*sections, form=Form(190, 2, flags=flags, abi=0x41, abi_version=abi))


def compat(*attributes: tuple[int, int, int], rest: bytes = b"") -> Section:
    rows = b"".join(struct.pack("<BBH", *a) for a in attributes)
    return Section(".nv.compat", rows + rest, 0x70000086)


def note(text: str) -> Section:
    return Section(".note.nv.tkinfo", b"\0" * 12 + text.encode() + b"\0", 7)


# e_flags as 17 releases of ptxas wrote them.
@pytest.mark.parametrize(
    ("flags", "abi", "sm"),
    [
        (0x5A055A, 7, "sm_90"),
        (0x5A0D5A, 7, "sm_90a"),
        (0x50055A, 7, "sm_90"),  # compiled from compute_80
        (0x560556, 7, "sm_86"),
        (0x6006402, 8, "sm_100"),
        (0x600640A, 8, "sm_100a"),  # 12.8 and 12.9
        (0x6005A04, 8, "sm_90"),
        (0x9007802, 8, "sm_120"),  # -lineinfo
        (0x10006002 & ~0xFF00 | 0x7900, 8, "sm_121"),  # -G
    ],
)
def test_flags_of_both_abi_versions(flags: int, abi: int, sm: str) -> None:
    assert code(made(flags, abi)).sm == sm


@pytest.mark.parametrize(
    ("sections", "sm"),
    [
        ([compat((2, 9, 1))], "sm_100a"),
        ([compat((2, 9, 0))], "sm_100"),
        ([compat((2, 2, 1), (2, 9, 1))], "sm_100a"),
        # A string attribute carries its length, and what it holds is no attribute.
        ([compat((4, 7, 4), rest=struct.pack("<BBH", 2, 9, 1))], "sm_100"),
        ([compat((4, 7, 4), rest=b"\2\x09\0\0" + struct.pack("<BBH", 2, 9, 1))], "sm_100a"),
        ([compat((4, 9, 0))], "sm_100"),
        ([compat((4, 7, 0xFFFF))], "sm_100"),
        ([compat(rest=b"\2\x09\1")], "sm_100"),
        ([note("-arch sm_100f -m 64")], "sm_100f"),
        ([note("-arch sm_100a -m 64")], "sm_100a"),
        ([note("-arch  sm_100  -m 64")], "sm_100"),
        # A note for another SM does not speak of this code.
        ([note("-arch sm_90a -m 64")], "sm_100"),
        ([compat((2, 9, 1)), note("-arch sm_100f")], "sm_100a"),
    ],
)
def test_suffix_of_a_bare_cubin(sections: list[Section], sm: str) -> None:
    assert code(made(0x6006402, 8, *sections)).sm == sm


def test_thor_under_its_old_name_keeps_its_suffix() -> None:
    assert code(made(0x6006502, 8, note("-arch sm_110f"))).sm == "sm_101f"


@pytest.mark.parametrize("abi", [0, 6, 9, 255])
def test_an_unknown_abi_version_is_named_and_not_guessed(abi: int) -> None:
    with pytest.raises(Malformed, match=f"ABI version {abi} is not known"):
        code(made(0x6005A04, abi))


@pytest.mark.parametrize(("flags", "abi"), [(0x500, 7), (0x6000004, 8), (0x6000904, 8)])
def test_an_impossible_sm_is_named(flags: int, abi: int) -> None:
    with pytest.raises(Malformed, match="e_flags"):
        code(made(flags, abi))


def test_kernels_are_the_entries_among_the_functions() -> None:
    # pyelftools reads the symbol table; STO_CUDA_ENTRY (0x10) is LLVM's name for the flag.
    compared = 0
    for path in CUBINS:
        with path.open("rb") as handle:
            table = ELFFile(handle).get_section_by_name(".symtab")
            # It takes st_other apart by the rules of other machines, so the byte is read raw.
            others = table.data()[5 :: table["sh_entsize"]]
            rows = [
                s.name
                for s, other in zip(table.iter_symbols(), others, strict=True)
                if s["st_info"]["type"] == "STT_FUNC" and other & 0x10
            ]
        data = path.read_bytes()
        assert list(cubin.cubin_kernels(data, reader.read(data))) == rows
        compared += len(rows)
    assert compared >= len(CUBINS)


SYMBOL = struct.Struct("<IBBHQQ")


def with_symbols(rows: bytes, strings: bytes) -> bytes:
    """Build a cubin whose symbol table is section 1 and whose names are section 2."""
    data = bytearray(
        made(0x6005A04, 8, Section(".symtab", rows, 2), Section(".strtab", strings, 3))
    )
    table = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<I", data, table + 64 + 40, 2)  # sh_link of .symtab
    return bytes(data)


def kernels(rows: bytes, strings: bytes) -> tuple[str, ...]:
    data = with_symbols(rows, strings)
    return cubin.cubin_kernels(data, reader.read(data))


def test_symbols_that_are_no_kernels_are_left_out() -> None:
    rows = b"".join(
        [
            SYMBOL.pack(1, 0x12, 0x10, 3, 0, 0),  # global entry
            SYMBOL.pack(3, 0x12, 0x00, 3, 0, 0),  # device function
            SYMBOL.pack(5, 0x12, 0x10, 0, 0, 0),  # undefined
            SYMBOL.pack(7, 0x11, 0x10, 3, 0, 0),  # object
            SYMBOL.pack(9, 0x22, 0x10, 3, 0, 0),  # weak entry
            SYMBOL.pack(1 << 31, 0x12, 0x10, 3, 0, 0),  # its name is past the table
        ]
    )
    assert kernels(rows + b"cut", b"\0a\0b\0c\0d\0e\0") == ("a", "e")


def test_names_that_are_no_utf8_are_kept_readable() -> None:
    assert kernels(SYMBOL.pack(1, 0x12, 0x10, 3, 0, 0), b"\0k\xff\0") == ("k\ufffd",)


def test_a_symbol_table_made_of_long_names_ends_soon_and_small() -> None:
    strings = b"\0" + b"n" * 100_000 + b"\0"
    rows = b"".join(SYMBOL.pack(90_000 - i, 0x12, 0x10, 3, 0, 0) for i in range(40_000))
    tracemalloc.start()
    before = time.process_time()
    with pytest.raises(Malformed, match=r"cubin \.symtab: names of more than"):
        kernels(rows, strings)
    took = time.process_time() - before
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 20
    assert peak < 200_000_000


def test_a_cubin_without_a_symbol_table_has_no_names() -> None:
    data = made(0x6005A04, 8)
    assert cubin.cubin_kernels(data, reader.read(data)) == ()


def test_a_stub_has_no_code() -> None:
    function = made(0x6005A04, 8, Section(".text.k", b"x" * 16))
    empty = made(0x6005A04, 8, Section(".text.k", b""))
    stub = made(0x6005A04, 8, Section(".nv.callgraph", b"x" * 16), Section(".text", b"x"))
    assert [cubin.has_code(reader.read(d)) for d in (function, empty, stub)] == [True, False, False]


def ptx(text: str) -> Code:
    return cubin.code_of_ptx(text.encode())


@pytest.mark.parametrize(
    ("text", "sm", "isa"),
    [
        (".version 8.4\n.target sm_90a\n.address_size 64\n", "sm_90a", "8.4"),
        ("//\n// Generated\n//\n\n.version 7.0\n.target sm_80\n", "sm_80", "7.0"),
        (".version 9.0 .target sm_120f, debug", "sm_120f", "9.0"),
        ("/* .version 9.9 .target sm_90a */.version 8.0 .target /* sm_1 */ sm_75", "sm_75", "8.0"),
        ("\r\n\t .version\t8.0\r\n.target\tsm_75\r\n", "sm_75", "8.0"),
        (".version 8.00\n.target sm_75", "sm_75", "8.0"),
        (".version 8.0\n.target sm_80\n.target sm_90", "sm_80", "8.0"),
    ],
)
def test_ptx_says_its_version_and_target(text: str, sm: str, isa: str) -> None:
    assert (ptx(text).sm, ptx(text).isa) == (sm, isa)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no .version at its start"),
        (".target sm_80\n.version 8.0", "no .version at its start"),
        ("\ufeff.version 8.0\n.target sm_80", "no .version at its start"),
        ("// .version 8.0\n.target sm_80", "no .version at its start"),
        ("/* .version 8.0\n.target sm_80", "no .version at its start"),
        (".version 8\n.target sm_80", "no .version at its start"),
        (".version 8.0.1x\n", "no .target after .version"),
        (".version 8.0\n", "no .target after .version"),
        (".version 8.0\n.target sm_8\n", "no .target after .version"),
        (".version 8.0\n.target gfx90a\n", "no .target after .version"),
        (".version 8.0\n.address_size 64\n.target sm_80\n", "no .target after .version"),
    ],
)
def test_ptx_that_does_not_begin_as_ptx_is_refused(text: str, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        ptx(text)


def test_entries_of_ptx_are_kernels_and_comments_are_not() -> None:
    text = b"""
    .visible .entry _Z3addPf(.param .u64 x) { ret; }
    .entry $odd%name() { ret; }
    // .entry commented() {}
    /* .entry blocked() {} */
    .file 1 "a//b.cu"
    .weak .entry last() {}
    .func device() {}
    """
    assert cubin.ptx_kernels(text) == ("_Z3addPf", "$odd%name", "last")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b".version 8.0\n.target sm_80\n.address_size 64\n", False),
        (b".visible .entry k() {}", True),
        (b".func f() {}", True),
        (b"// .func f() {}", False),
        (b".functional", False),
    ],
)
def test_ptx_has_code_where_it_has_a_function(text: bytes, *, expected: bool) -> None:
    assert cubin.ptx_has_code(text) is expected


@pytest.mark.parametrize(
    "piece", [b"/*", b"//", b'"', b"/* */ /*", b"/**/", b"//\n", b" ", b"/* * / */", b".version "]
)
def test_texts_made_of_comments_are_read_in_linear_time(piece: bytes) -> None:
    text = piece * (1_000_000 // len(piece))
    before = time.process_time()
    with pytest.raises(Malformed):
        cubin.code_of_ptx(text)
    with pytest.raises(Malformed):
        cubin.code_of_ptx(b".version 8.0 " + text)
    cubin.ptx_has_code(text + b".entry k() {}")
    cubin.ptx_kernels(text + b".entry k() {}")
    assert time.process_time() - before < 10


@given(st.binary(max_size=200))
def test_any_text_is_read_or_refused(text: bytes) -> None:
    try:
        assert cubin.code_of_ptx(b".version 8.0\n" + text).isa == "8.0"
    except Malformed as error:
        assert str(error) == "PTX text: no .target after .version"  # noqa: PT017


def test_payload_of_an_entry_must_be_a_cubin_for_its_sm() -> None:
    image = (DATA / "truth" / "objects" / "cu13.0__rawsass_90.cubin").read_bytes()

    def check(data: bytes, sm: str) -> None:
        cubin.check_cubin(b"??" + data, 2, len(data), Code(kind="sass", sm=sm))

    check(image, "sm_90")
    check(image, "sm_90a")
    with pytest.raises(Malformed, match="a cubin for sm_90 where the entry says sm_80"):
        check(image, "sm_80")
    with pytest.raises(Malformed, match="not a cubin"):
        check(bytes(len(image)), "sm_90")
    with pytest.raises(Malformed, match="40 bytes are no cubin"):
        check(image[:40], "sm_90")
    thor = made(0x6006502, 8)
    check(thor, "sm_110")
