"""One file in, one answer out: every format, every odd file, and nothing that can end badly."""

from __future__ import annotations

import json
import mmap
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from build_elf import (
    GOOD,
    P80,
    S80,
    S90,
    STUB75,
    Form,
    Section,
    container,
    cubin,
    elf,
    entry,
    fat,
    member,
    wrapper,
)
from inventories import DATA, read

from envcheck.core.coverage import UNREAD
from envcheck.core.device_file import DeviceFile
from envcheck.guest import device_code
from envcheck.inflate import inflate

INDEX = json.loads((DATA / "elf" / "index.json").read_text())
KINDS = {"sass": "s", "ptx": "p"}


def opened(data: bytes, path: str = "a.so") -> DeviceFile:
    return device_code.read(data, path=path, inflate=inflate)


def held(file: DeviceFile) -> list[str]:
    """List entries in the notation of tests/data/elf/index.json."""
    if file.format == "cubin":
        return []  # the index lists what stands in containers
    codes = {code for part in file.containers for code in part.code}
    return sorted(
        f"{KINDS[c.kind]}{c.sm[3:]}" if c.kind in KINDS else f"?{int(c.kind[5:], 16)}"
        for c in codes
    )


# A header walk alone would read them; their payloads are no cubins or cannot be unpacked, and a
# card refuses such a file (tests/data/truth-extra, head_s90_zeroed_p80.fatbin).
PAYLOADS = {"fatbin-magic-in-payload.so", "fatbin-many-entries.so", "fatbin-packed-garbage.so"}
# What their headers hide is found by its magic.
RECOVERED = {"no-name-table.so"}
# 64 bytes of header: nothing is left in it that could be malformed.
HOLLOW = {"no-sections.so"}


@pytest.mark.parametrize("name", [n for n, row in INDEX.items() if row["malformed"]])
def test_a_broken_file_says_what_is_wrong_and_gives_no_more_than_it_has(name: str) -> None:
    file = read(DATA / "elf" / name)
    if name not in RECOVERED | HOLLOW:
        assert file.problem, INDEX[name]["why"]
        assert file.skipped is None
    assert set(held(file)) <= set(INDEX[name]["entries"])


@pytest.mark.parametrize(
    "name", [n for n, row in INDEX.items() if not row["malformed"] and n not in PAYLOADS]
)
def test_an_odd_file_is_read_whole(name: str) -> None:
    file, row = read(DATA / "elf" / name), INDEX[name]
    assert file.problem is None, row["why"]
    assert held(file) == sorted(set(row["entries"]))
    # Only what holds code is judged; the rest says why it is not.
    judged = any(c.has_code for c in file.containers)
    assert bool(file.skipped) is not judged


@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_a_payload_that_no_driver_would_take_is_a_problem(name: str) -> None:
    file = read(DATA / "elf" / name)
    assert file.problem is not None
    assert file.problem.startswith("fatbin payload at 144: ")


# "thin" is not followed: what stands in other files is judged there.
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("thin.a", "thin archive: its members are elsewhere"),
        ("hip.so", "HIP code for AMD cards, none for NVIDIA"),
        ("empty.so", "empty file"),
        ("zip.so", "not a format that holds device code"),
        ("gnu-ld-script.so", "not a format that holds device code"),
        ("no-device-code.so", "no device code"),
        ("fatbin-stub-alone.so", "only a link stub without code"),
        ("fatbin-no-entries.so", "only containers without entries"),
        ("debug-file.so", "no device code"),
    ],
)
def test_a_file_of_no_interest_says_why(name: str, reason: str) -> None:
    assert read(DATA / "elf" / name).skipped == reason


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("truth/objects/rdc_s80p80.so", "shared-object"),
        ("truth/objects/cu13.0__sass_90.fatbin", "fatbin"),
        ("truth/objects/cu13.0__rawsass_90.cubin", "cubin"),
        ("truth/objects/isa7.0__ptx_75.ptx", "ptx"),
        ("truth-extra/objects/plain_s80_p80.o", "object"),
        ("truth-extra/objects/both.a", "archive"),
    ],
)
def test_the_format_is_told_by_content_and_not_by_name(path: str, form: str) -> None:
    data = (DATA / path).read_bytes()
    assert opened(data, "anything.bin").format == form
    assert opened(data, "wrong.ptx").format == form


def test_an_executable_is_told_from_a_library() -> None:
    assert opened(elf(fat(GOOD), form=Form(type=2))).format == "executable"


def test_a_text_called_ptx_is_read_as_ptx_or_refused() -> None:
    assert opened(b"hello", "a.ptx").problem == "PTX text: no .version at its start"
    assert opened(b"hello", "a.txt").skipped == "not a format that holds device code"
    assert opened(b"\0\1\2", "a.ptx").skipped == "not a format that holds device code"


def test_a_mapped_file_is_read_like_its_bytes(tmp_path: Path) -> None:
    for name in ("truth-extra/objects/two_add80__add2_80_90.so", "truth-extra/objects/both.a"):
        path = DATA / name
        with path.open("rb") as handle:
            view = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
            mapped = device_code.read(view, path=path.name, inflate=inflate)
            view.close()
        assert mapped == read(path)


def test_containers_of_one_shape_are_counted_together() -> None:
    file = opened(elf(fat(container(S90, P80) * 3 + container(S80))))
    assert [(part.count, len(part.code)) for part in file.containers] == [(3, 2), (1, 1)]


def test_order_within_a_container_is_kept_for_ptx_of_one_sm() -> None:
    def ptx(isa: int) -> bytes:
        text = f".version 9.{isa}\n.target sm_80\n.visible .entry k() {{}}\n".encode()
        return entry(1, 80, text, version=(9, isa))

    for order in ((0, 1), (1, 0)):
        file = opened(elf(fat(container(*map(ptx, order)))))
        assert [c.isa for c in file.containers[0].code] == [f"9.{n}" for n in order]


def test_a_stub_entry_does_not_hide_the_code_beside_it() -> None:
    file = opened(elf(fat(container(STUB75, S90))))
    assert (file.skipped, file.containers[0].has_code) == (None, True)


def test_a_stub_container_is_no_code_even_beside_code() -> None:
    file = opened(elf(fat(container(STUB75) + container(S90))))
    assert [part.has_code for part in file.containers] == [False, True]
    # One stub is no reason to read names: nothing differs.
    assert all(part.kernels is None for part in file.containers)


def test_lto_ir_alone_is_code_that_has_to_be_linked() -> None:
    file = read(DATA / "truth-extra" / "objects" / "lto_l90.fatbin")
    assert (file.skipped, file.problem) == (None, None)
    assert [c.kind for c in file.containers[0].code] == ["lto-ir"]


def test_hip_and_cuda_in_one_file_are_read_for_cuda() -> None:
    hip = Section(".hip_fatbin", b"x" * 16)
    file = opened(elf(fat(GOOD), hip))
    assert file.skipped is None
    assert held(file) == ["p80", "s90"]


# Names are read where containers serve different cards, and only there.
def test_kernels_are_named_where_containers_differ() -> None:
    file = read(DATA / "truth-extra" / "objects" / "two_add80__add2_80_90.so")
    named = {tuple(c.sm for c in part.code): part.kernels for part in file.containers}
    assert named == {("sm_75",): (), ("sm_80",): ("probe",), ("sm_80", "sm_90"): ("add2",)}


def test_kernels_are_not_named_where_containers_are_alike() -> None:
    file = read(DATA / "truth-extra" / "objects" / "so_s80_s90.so")
    assert [part.kernels for part in file.containers] == [None, None]


def test_kernels_of_nvidias_own_libraries_are_not_named() -> None:
    path = DATA / "truth-extra" / "objects" / "two_add80__add2_80_90.so"
    file = read(path, "nvidia/cublas/lib/libcublas.so.12")
    assert all(part.kernels is None for part in file.containers)


def test_the_needed_libraries_are_kept() -> None:
    file = read(DATA / "truth-extra" / "objects" / "so_s90.so")
    assert "libcudart.so.13" in file.needed


def stripped(data: bytes) -> bytes:
    """Return an ELF without its section header table, as sstrip leaves it."""
    table = struct.unpack_from("<Q", data, 40)[0]
    return data[:40] + bytes(8) + data[48:58] + bytes(6) + data[64:table]


def test_code_is_found_without_section_headers() -> None:
    data = elf(Section(".text", b"\xc3" * 16), fat(GOOD), Section(".data", b"x" * 16), fat(GOOD))
    file = opened(stripped(data))
    assert file.problem is None
    assert [(part.section, part.count) for part in file.containers] == [(".nv_fatbin", 2)]
    # Bytes that look like the magic and are no container are data.
    decoy = elf(Section(".text", b"\x50\xed\x55\xba" + b"\xc3" * 16))
    assert opened(stripped(decoy)).skipped == "no device code"


def test_sections_that_lie_over_each_other_are_refused() -> None:
    data = elf(fat(GOOD), fat(GOOD, offset=64), fat(GOOD, offset=64))
    problem = opened(data).problem
    assert problem is not None
    assert problem.startswith("ELF section at ")
    assert "overlaps" in problem


def test_two_sections_side_by_side_are_both_read() -> None:
    file = opened(elf(fat(container(S80)), fat(container(P80)), form=Form(type=1)))
    assert held(file) == ["p80", "s80"]


def archive(*members: bytes) -> bytes:
    return b"!<arch>\n" + b"".join(member(b"m/", m) for m in members)


def test_an_archive_is_the_union_of_its_members() -> None:
    first, second = elf(fat(container(S80)), form=Form(type=1)), elf(fat(container(P80)))
    file = opened(archive(first, b"text", b"", second, elf(Section(".text", b"\xc3"))))
    assert (file.format, held(file)) == ("archive", ["p80", "s80"])


def test_one_broken_member_is_a_problem_of_the_archive() -> None:
    assert opened(archive(elf(fat(GOOD)), elf(fat(GOOD, size=1 << 63)))).problem


def test_an_archive_of_many_members_is_read_in_one_pass() -> None:
    one = elf(fat(container(S90)), form=Form(type=1))
    file = opened(archive(*[one] * 2000))
    assert [part.count for part in file.containers] == [2000]


# Which containers the runtime is handed: see wrappers.py. These rows ran on a card.
@pytest.mark.parametrize(
    ("name", "read_sms"),
    [
        ("cc_s80__s90.so", ["sm_80"]),
        ("cc_s80__s90_wrapper2.so", ["sm_90"]),
        ("cc_s90__s80.so", ["sm_90"]),
        ("cc_s90__s80_wrapper2.so", ["sm_80"]),
        ("cc_s80__s90.fatbin", ["sm_80"]),
        ("cc_s90__s80.fatbin", ["sm_90"]),
    ],
)
def test_only_the_container_that_is_handed_over_is_read(name: str, read_sms: list[str]) -> None:
    file = read(DATA / "truth-extra" / "objects" / name)
    sms = [c.sm for part in file.containers if part.section != UNREAD for c in part.code]
    assert sms == read_sms
    assert any(part.section == UNREAD for part in file.containers)


def wrapped(pointer: int, relocation: tuple[int, int] | None) -> DeviceFile:
    """Read a library of two containers and one wrapper, each section at address = offset."""
    segment = Section(".nvFatBinSegment", struct.pack("<IIQQ", 0x466243B1, 1, pointer, 0), flags=3)
    rows = [] if relocation is None else [struct.pack("<QQQ", relocation[0], 8, relocation[1])]
    table = Section(".rela.dyn", struct.pack("<QQQ", 0, 8, 0) + b"".join(rows), 4)
    data = bytearray(elf(fat(container(S80) + container(S90)), segment, table))
    at = struct.unpack_from("<Q", data, 40)[0]
    for row in range(at + 64, len(data), 64):
        offset = struct.unpack_from("<Q", data, row + 24)[0]
        struct.pack_into("<Q", data, row + 16, offset)
    return opened(bytes(data))


FIRST = 64
SECOND = FIRST + len(container(S80))
SEGMENT = FIRST + len(container(S80) + container(S90))


@pytest.mark.parametrize(
    ("pointer", "relocation", "unread"),
    [
        # The loader writes the addend, whatever stood there before.
        (0, (SEGMENT + 8, SECOND), ["sm_80"]),
        (0, (SEGMENT + 8, FIRST), ["sm_90"]),
        (FIRST, (SEGMENT + 8, SECOND), ["sm_80"]),
        # Without a relocation the pointer stands as it is (an executable at a fixed place).
        (SECOND, None, ["sm_80"]),
        # What points elsewhere tells nothing: then every container counts.
        (0, None, []),
        (0, (SEGMENT + 8, 1 << 63), []),
        (SECOND + 8, None, []),
        (0, (SEGMENT, SECOND), []),
    ],
)
def test_wrappers_are_followed(
    pointer: int, relocation: tuple[int, int] | None, unread: list[str]
) -> None:
    file = wrapped(pointer, relocation)
    assert file.problem is None
    found = [c.sm for part in file.containers if part.section == UNREAD for c in part.code]
    assert found == unread


def test_as_many_wrappers_as_containers_need_not_be_followed() -> None:
    # Unrelocated, as in an object file: the walk goes by the section.
    file = opened(elf(fat(GOOD), wrapper(), form=Form(type=1)))
    assert [part.section for part in file.containers] == [".nv_fatbin"]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", ["sass", "ptx"])
def test_compressed_payloads_are_read_like_plain_ones(compression: str, kind: str) -> None:
    import lz4.block
    import zstandard

    text = b".version 8.0\n.target sm_80\n.visible .entry probe() {}\n\0"
    image = cubin(80) if kind == "sass" else text
    if compression == "zstd":
        packed, flag = zstandard.ZstdCompressor().compress(image), 0x8000
    else:
        packed, flag = lz4.block.compress(image, store_size=False), 0x2000
    number, version = (2, (1, 8)) if kind == "sass" else (1, (8, 0))
    made = entry(
        number,
        80,
        packed,
        flags=0x11 | flag,
        compressed=len(packed),
        unpacked=len(image),
        version=version,
    )
    file = opened(elf(fat(container(made) + container(S90))))
    assert file.problem is None
    assert [part.has_code for part in file.containers] == [True, True]
    if kind == "ptx":
        assert file.containers[0].kernels == ("probe",)


def _bomb(flag: int, payload: bytes, unpacked: int) -> bytes:
    made = entry(2, 90, payload, flags=0x11 | flag, compressed=len(payload), unpacked=unpacked)
    return elf(fat(container(made) + container(S80)))


def _zstd_frame(claimed: int) -> bytes:
    """Return a zstd frame that says it holds `claimed` bytes and holds none."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", claimed) + b"\1\0\0"


BOMBS: dict[str, Callable[[], bytes]] = {
    "zstd frame of 2^62 bytes": lambda: _bomb(0x8000, _zstd_frame(1 << 62), 4096),
    "zstd frame of 1 TB, as the header says": lambda: _bomb(0x8000, _zstd_frame(1 << 40), 1 << 40),
    "zstd frame of 8 GB that is small": lambda: _bomb(0x8000, _zstd_frame(1 << 33), 100),
    "lz4 of 1 TB": lambda: _bomb(0x2000, b"\x1fx" + b"\xff" * 50, 1 << 40),
    "lz4 of 200 MB in 52 bytes": lambda: _bomb(0x2000, b"\x1fx" + b"\xff" * 50, 200 << 20),
    "entry of 2^63 bytes": lambda: elf(fat(container(entry(2, 90, b"", claimed=1 << 63)))),
    "container of 2^63 bytes": lambda: elf(fat(container(S90, claimed=1 << 63))),
    "section of 2^63 bytes": lambda: elf(fat(GOOD, size=1 << 63)),
    "section at 2^63": lambda: elf(fat(GOOD, offset=1 << 63)),
    "member of 9,999,999,999 bytes": lambda: b"!<arch>\n" + member(b"m/", b"x", size=b"9999999999"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_claim_of_a_file_is_believed_before_it_is_checked(name: str) -> None:
    data = BOMBS[name]()
    opened(data)  # imports and caches
    tracemalloc.start()
    file = opened(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Nothing is judged by chance: either it is refused, or its payload was not needed.
    assert file.problem is not None or file.containers
    assert peak < 4_000_000, name


def test_a_real_zstd_bomb_is_cut_at_what_its_header_says() -> None:
    import zstandard

    packed = zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))
    for unpacked in (4096, 8000):
        opened(_bomb(0x8000, packed, unpacked))
        tracemalloc.start()
        file = opened(_bomb(0x8000, packed, unpacked))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert file.problem is not None
        assert "the frame says 67108864 bytes" in file.problem
        assert peak < 4_000_000


def test_inflate_refuses_what_it_does_not_have() -> None:
    with pytest.raises(ValueError, match="zstd"):
        inflate(b"garbage", "zstd", 10)
    with pytest.raises(ValueError, match="lz4"):
        inflate(b"\x10", "lz4", 10)
    with pytest.raises(ValueError, match="cannot become"):
        inflate(b"\x10", "lz4", 1000)


def test_a_frame_without_its_size_is_bounded_by_the_header() -> None:
    import zstandard

    writer = zstandard.ZstdCompressor(write_content_size=False)
    packed = writer.compress(b"x" * 5000)
    assert inflate(packed, "zstd", 5000) == b"x" * 5000
    with pytest.raises(ValueError, match="zstd"):
        inflate(packed, "zstd", 4999)
    with pytest.raises(ValueError, match="5000 bytes where the header says 5001"):
        inflate(packed, "zstd", 5001)


def test_a_path_is_kept_as_it_was_given() -> None:
    path = "wheel.whl!/" + os.fsdecode(b"\xff") + ".so"
    assert opened(b"", path).path == path
