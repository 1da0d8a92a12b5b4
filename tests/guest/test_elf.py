"""The ELF reader against pyelftools, and against headers that lie."""

from __future__ import annotations

import struct
import sys
import sysconfig
import time
import tracemalloc
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from inventories import DATA

from envcheck.guest import elf
from envcheck.guest.elf import Malformed


def _libraries() -> list[Path]:
    """Return the shared objects of the running interpreter, and those of the tests."""
    folders = [
        Path(sysconfig.get_path("platstdlib")) / "lib-dynload",
        Path(sysconfig.get_path("platlib")),
    ]
    found = [Path(sys.executable).resolve()]
    for folder in folders:
        found += sorted(folder.rglob("*.so*"))
    found += sorted((DATA / "truth" / "objects").glob("*.so"))
    found += sorted((DATA / "truth-extra" / "objects").glob("*.so"))
    found += sorted((DATA / "truth-extra" / "objects").glob("*.o"))
    found += sorted((DATA / "truth" / "objects").glob("*.cubin"))
    return [p for p in found if p.is_file() and p.read_bytes()[:4] == elf.MAGIC]


def _expected(path: Path) -> dict:
    with path.open("rb") as handle:
        image = ELFFile(handle)
        header = image.header
        sections = [
            (s.name, s["sh_addr"], s["sh_offset"], s["sh_size"], s["sh_link"])
            for s in image.iter_sections()
        ]
        dynamic = image.get_section_by_name(".dynamic")
        needed = [t.needed for t in dynamic.iter_tags("DT_NEEDED")] if dynamic else []
        return {
            "bits": image.elfclass,
            "endian": "<" if image.little_endian else ">",
            "flags": header["e_flags"],
            "abi": header["e_ident"]["EI_ABIVERSION"],
            "sections": sections,
            "needed": needed,
        }


def test_sections_and_needed_libraries_are_what_pyelftools_reads() -> None:
    paths = _libraries()
    assert len(paths) > 100
    for path in paths:
        data, expected = path.read_bytes(), _expected(path)
        found = elf.read(data)
        assert (found.bits, found.endian, found.flags, found.abi_version) == (
            expected["bits"],
            expected["endian"],
            expected["flags"],
            expected["abi"],
        ), path
        rows = [(s.name, s.address, s.offset, s.size, s.link) for s in found.sections]
        cut = [(n[:256], *rest) for n, *rest in expected["sections"]]
        assert rows == cut, path
        assert list(elf.needed(data, found)) == expected["needed"], path


@pytest.mark.parametrize("name", ["elf32.so", "big-endian.so", "extended-numbering.so"])
def test_other_layouts_are_read_like_pyelftools_does(name: str) -> None:
    path = DATA / "elf" / name
    found, expected = elf.read(path.read_bytes()), _expected(path)
    assert (found.bits, found.endian) == (expected["bits"], expected["endian"])
    rows = [(s.name, s.address, s.offset, s.size, s.link) for s in found.sections]
    assert rows == [tuple(row) for row in expected["sections"]]


def test_an_image_inside_a_file_is_read_by_its_own_offsets() -> None:
    image = (DATA / "elf" / "plain.so").read_bytes()
    whole = b"x" * 24 + image + b"y" * 100
    alone, inside = elf.read(image), elf.read(whole, 24, len(image))
    assert inside.sections == alone.sections
    section = inside.find(".nv_fatbin")
    assert section is not None
    begin, end = inside.content(section)
    first, last = alone.content(section)
    assert whole[begin:end] == image[first:last]
    # It ends where it was said to end, not where the buffer does.
    with pytest.raises(Malformed, match="past the end"):
        elf.read(whole, 24, len(image) - 10)


HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")


def made(sections: list[tuple], names: bytes, **changes: int) -> bytes:
    """Build a 64-bit ELF from section rows (name, type, address, offset, size, link)."""
    fields = {"shoff": 64, "shentsize": 64, "shnum": len(sections), "shstrndx": len(sections) - 1}
    fields |= changes
    head = HEADER.pack(
        b"\x7fELF\2\1\1" + bytes(9), 3, 62, 1, 0, 0, fields["shoff"], 0, 64, 0, 0,
        fields["shentsize"], fields["shnum"], fields["shstrndx"],
    )  # fmt: skip
    rows = [SECTION.pack(n, t, 0, a, o, s, k, 0, 0, 0) for n, t, a, o, s, k in sections]
    return head + b"".join(rows) + names


def _two(offset: int, size: int, kind: int = 1, link: int = 0) -> bytes:
    names = b"\0.nv_fatbin\0.shstrtab\0"
    start = 64 + 3 * 64
    rows = [(0,) * 6, (1, kind, 0, offset, size, link), (12, 3, 0, start, len(names), 0)]
    return made(rows, names)


@pytest.mark.parametrize(
    ("offset", "size"),
    [(1 << 63, 8), (8, 1 << 63), ((1 << 64) - 8, 16), (0, 10_000), (1 << 40, 0)],
)
def test_a_section_past_the_end_is_named_and_never_read(offset: int, size: int) -> None:
    image = elf.read(_two(offset, size))
    section = image.find(".nv_fatbin")
    assert section is not None
    with pytest.raises(Malformed, match=r"'\.nv_fatbin': sh_offset .* is past the end"):
        image.content(section)


def test_a_section_without_bytes_in_the_file_is_empty() -> None:
    image = elf.read(_two(1 << 40, 1 << 40, kind=8))
    section = image.find(".nv_fatbin")
    assert section is not None
    begin, end = image.content(section)
    assert begin == end


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shoff": 1 << 63}, "e_shoff"),
        ({"shoff": (1 << 64) - 1}, "e_shoff"),
        ({"shnum": 0xFF00}, "e_shoff 64: 65280 section headers are past the end"),
        ({"shentsize": 0}, "e_shentsize"),
        ({"shentsize": 63}, "e_shentsize"),
        ({"shentsize": 0xFFFF}, "e_shoff"),
        ({"shstrndx": 99}, "e_shstrndx 99"),
        ({"shstrndx": 0xFFFF}, "e_shnum"),
    ],
)
def test_header_fields_that_cannot_be_are_named(changes: dict[str, int], message: str) -> None:
    names = b"\0.shstrtab\0"
    rows = [(0, 0, 0, 0, 0, 77), (1, 3, 0, 192, len(names), 0)]
    with pytest.raises(Malformed, match=message):
        elf.read(made(rows, names, **changes))


def test_counts_that_stand_in_section_0_are_believed_only_as_far_as_the_file_goes() -> None:
    names = b"\0.shstrtab\0"
    for count in (1 << 21, 1 << 62, 1 << 19):
        rows = [(0, 0, 0, 0, count, 1), (1, 3, 0, 192, len(names), 0)]
        with pytest.raises(Malformed, match=r"e_shnum|e_shoff"):
            elf.read(made(rows, names, shnum=0, shstrndx=0xFFFF))


def test_a_wider_section_header_is_stepped_over() -> None:
    names = b"\0.shstrtab\0"
    wide = made([(0,) * 6, (1, 3, 0, 64 + 2 * 80, len(names), 0)], b"")
    rows = [wide[64:128] + bytes(16), wide[128:192] + bytes(16)]
    head = wide[:58] + struct.pack("<H", 80) + wide[60:64]
    found = elf.read(head + b"".join(rows) + names)
    assert [s.name for s in found.sections] == ["", ".shstrtab"]


@pytest.mark.parametrize("size", range(64))
def test_a_cut_header_is_named(size: int) -> None:
    with pytest.raises(Malformed, match=r"ELF (header|e_ident)"):
        elf.read((DATA / "elf" / "plain.so").read_bytes()[:size])


@pytest.mark.parametrize("position", [4, 5])
@pytest.mark.parametrize("value", [0, 3, 255])
def test_unknown_class_and_byte_order_are_named(position: int, value: int) -> None:
    data = bytearray((DATA / "elf" / "plain.so").read_bytes())
    data[position] = value
    with pytest.raises(Malformed, match="e_ident"):
        elf.read(bytes(data))


def test_many_sections_that_share_one_long_name_stay_small() -> None:
    # Each name is cut; otherwise the names of this file would take gigabytes.
    count, name = 50_000, b"n" * (1 << 18)
    start = 64 + 64 * count
    rows = SECTION.pack(1, 3, 0, 0, start, len(name) + 2, 0, 0, 0, 0)
    head = HEADER.pack(
        b"\x7fELF\2\1\1" + bytes(9), 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 0, 0xFFFF
    )  # fmt: skip
    first = SECTION.pack(0, 0, 0, 0, 0, count, 1, 0, 0, 0)
    data = head + first + rows * (count - 1) + b"\0" + name + b"\0"
    tracemalloc.start()
    before = time.process_time()
    found = elf.read(data)
    took = time.process_time() - before
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.sections) == count
    assert found.sections[1].name == "n" * 256
    assert peak < 12 * len(data)
    assert took < 20


def _dynamic(entries: bytes, strings: bytes, link: int = 2) -> bytes:
    names = b"\0.dynamic\0.dynstr\0.shstrtab\0"
    start = 64 + 4 * 64
    rows = [
        (0,) * 6,
        (1, 6, 0, start, len(entries), link),
        (10, 3, 0, start + len(entries), len(strings), 0),
        (18, 3, 0, start + len(entries) + len(strings), len(names), 0),
    ]
    return made(rows, entries + strings + names)


def test_needed_names_past_their_table_are_left_out() -> None:
    entries = struct.pack("<qQqQqQqQ", 1, 1, 1, 1 << 63, 1, 6, 0, 0) + struct.pack("<qQ", 1, 1)
    data = _dynamic(entries, b"\0a.so\0b.so\0")
    # The entry behind DT_NULL is no entry.
    assert elf.needed(data, elf.read(data)) == ("a.so", "b.so")


@pytest.mark.parametrize("link", [0, 99, 0xFFFFFFFF])
def test_a_dynamic_section_without_its_strings_needs_nothing(link: int) -> None:
    data = _dynamic(struct.pack("<qQ", 1, 1), b"\0a.so\0", link=link)
    assert elf.needed(data, elf.read(data)) == ()


def test_a_dynamic_section_of_nothing_but_long_names_stays_small() -> None:
    count = 500_000
    data = _dynamic(struct.pack("<qQ", 1, 1) * count, b"\0" + b"n" * 100_000 + b"\0")
    tracemalloc.start()
    found = elf.needed(data, elf.read(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) <= 4096
    assert peak < 50_000_000
