"""Fatbin containers: every field of a header that is read, and every one that can lie."""

from __future__ import annotations

import struct
import time

import pytest
from build_elf import P80, S80, S90, container, cubin, entry
from hypothesis import given
from hypothesis import strategies as st

from envcheck.guest import fatbin
from envcheck.guest.elf import Malformed

FLAG = {"a": 0x100000, "f": 0x200000, "lz4": 0x2000, "zstd": 0x8000, "keyed": 0x10000}


def codes(data: bytes) -> list[list[tuple[str, str, str | None]]]:
    return [
        [(e.code.kind, e.code.sm, e.code.isa) for e in packed.entries]
        for packed in fatbin.containers(data, 0, len(data))
    ]


def test_header_fields_become_kind_sm_suffix_and_isa() -> None:
    data = container(
        entry(2, 90, b"x" * 8, flags=0x11 | FLAG["a"], version=(1, 7)),
        entry(2, 120, b"x" * 8, flags=0x11 | FLAG["f"] | 0x1000000, version=(1, 8)),
        entry(1, 75, b"x" * 8, version=(8, 4)),
        entry(8, 90, b"x" * 8, flags=0x11 | FLAG["keyed"], version=(2, 0)),
        entry(0x80, 100, b"x" * 8),
    )
    assert codes(data) == [
        [
            ("sass", "sm_90a", None),
            ("sass", "sm_120f", None),
            ("ptx", "sm_75", "8.4"),
            ("lto-ir", "sm_90", None),
            ("kind-0x80", "sm_100", None),
        ]
    ]


@pytest.mark.parametrize(
    ("flags", "compression", "compressed", "unpacked"),
    [
        (0, "", 0, 0),
        (FLAG["lz4"], "lz4", 13, 900),
        (FLAG["zstd"], "zstd", 16, 901),
        (FLAG["keyed"], "keyed", 0, 0),
        # Obfuscation lies over the compression: unpacking is not even tried.
        (FLAG["keyed"] | FLAG["zstd"], "keyed", 13, 900),
    ],
)
def test_where_the_payload_lies(
    flags: int, compression: str, compressed: int, unpacked: int
) -> None:
    made = entry(2, 90, b"x" * 16, flags=0x11 | flags, compressed=compressed, unpacked=unpacked)
    data = b"\0" * 8 + container(made)
    ((found,),) = (p.entries for p in fatbin.containers(data, 8, len(data)))
    assert found.compression == compression
    assert (found.offset, found.stored) == (8 + 16 + 64, compressed or 16)
    assert found.unpacked == (unpacked or 16)


def test_containers_follow_each_other_and_zeros_between_them_are_padding() -> None:
    data = container(S90) + container() + bytes(40) + container(S80, P80) + bytes(24)
    found = codes(data)
    assert [[sm for _, sm, _ in part] for part in found] == [["sm_90"], [], ["sm_80", "sm_80"]]


def test_where_each_container_starts() -> None:
    first, second = container(S90), container(P80)
    data = bytes(16) + first + bytes(8) + second
    starts = [p.start for p in fatbin.containers(data, 16, len(data))]
    assert starts == [16, 16 + len(first) + 8]


GOOD = container(S90)
SIZE = len(S90)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (container(S90, version=2), "fatbin header at 0 .*version 2"),
        (container(S90, header=8), "header 8"),
        (container(S90, header=1 << 15), "header 32768"),
        (container(S90, claimed=SIZE + 8), "fatbin header at 0"),
        (container(S90, claimed=1 << 63), "fatbin header at 0"),
        (container(S90, claimed=(1 << 64) - 1), "fatbin header at 0"),
        (container(S90, claimed=SIZE - 8), "fatbin entry at 16"),
        (container(S90, claimed=32) + bytes(32), "fatbin entry at 16: header is past the end"),
        (GOOD + b"x", "section ends inside it"),
        (GOOD + b"\x50\xed\x55\xba", "section ends inside it"),
        (GOOD + b"code" * 8, "bytes that belong to no container"),
        (b"\0" * 8 + b"x" + b"\0" * 15 + GOOD, "bytes that belong to no container"),
        (bytes(20) + GOOD, "offset 20 of its section"),
        (container(entry(2, 0, b"x" * 8)), "SM number 0"),
        (container(entry(2, 9, b"x" * 8)), "SM number 9"),
        (container(entry(2, 1000, b"x" * 8)), "SM number 1000"),
        (container(entry(2, 0xFFFFFFFF, b"x" * 8)), "SM number 4294967295"),
        (container(entry(2, 90, b"x" * 8, header=56)), "header size 56"),
        (container(entry(2, 90, b"x" * 8, header=0)), "header size 0"),
        (container(entry(2, 90, b"x" * 8, claimed=1 << 63)), "payload size 9223372036854775808"),
        (container(entry(2, 90, b"x" * 8, claimed=(1 << 64) - 64)), "payload size"),
        (container(entry(2, 90, b"x" * 8, compressed=9)), "compressed size 9"),
        (container(entry(2, 90, b"x" * 8, ident=(64, 1))), "identifier at 64 [+] 1"),
        (container(entry(2, 90, b"x" * 8, ident=(0xFFFFFFFF, 0))), "identifier"),
        (container(entry(2, 90, b"x" * 8, option=64)), "options at 64"),
        (container(entry(2, 90, b"x" * 8, flags=0x300000)), "`a` and `f` at once"),
    ],
)
def test_what_cannot_be_is_named(data: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        codes(data)


def test_what_came_before_the_fault_was_already_given() -> None:
    walk = fatbin.containers(GOOD + container(S90, version=9), 0, 2 * len(GOOD))
    assert next(walk).entries[0].code.sm == "sm_90"
    with pytest.raises(Malformed):
        next(walk)


def test_a_magic_inside_a_payload_is_no_container() -> None:
    data = container(entry(2, 90, container(S80)), P80)
    assert codes(data) == [[("sass", "sm_90", None), ("ptx", "sm_80", "8.0")]]


def test_more_entries_than_any_library_has_are_refused_in_time() -> None:
    data = container(*[entry(2, 90, b"")] * 1000) * 270
    before = time.process_time()
    with pytest.raises(Malformed, match="more than 262144 entries"):
        codes(data)
    assert time.process_time() - before < 20


def test_empty_containers_without_end_are_refused_in_time() -> None:
    data = container() * 300_000
    with pytest.raises(Malformed, match="more than 262144 entries"):
        list(fatbin.containers(data, 0, len(data)))


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 8]),
        st.integers(10, 999),
        st.sampled_from(["", "a", "f"]),
        st.binary(max_size=40),
        st.tuples(st.integers(0, 99), st.integers(0, 99)),
    ),
    max_size=5,
)


@given(st.lists(ENTRIES, max_size=4))
def test_what_was_written_is_read(parts: list[list[tuple]]) -> None:
    data = b"".join(
        container(
            *(
                entry(kind, sm, payload, flags=0x11 | FLAG.get(suffix, 0), version=version)
                for kind, sm, suffix, payload, version in part
            )
        )
        for part in parts
    )
    kinds = {1: "ptx", 2: "sass", 8: "lto-ir"}
    expected = [
        [
            (kinds[k], f"sm_{sm}{suffix}", f"{v[0]}.{v[1]}" if k == 1 else None)
            for k, sm, suffix, _, v in part
        ]
        for part in parts
    ]
    assert codes(data) == expected


@given(st.data())
def test_any_bytes_end_in_entries_or_in_malformed(data: st.DataObject) -> None:
    good = bytearray(container(S90, P80) + container(S80))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 8))
        good[at : at + 8] = struct.pack("<Q", data.draw(st.integers(0, (1 << 64) - 1)))
    try:
        found = list(fatbin.containers(bytes(good), 0, len(good)))
    except Malformed as error:
        assert str(error).startswith("fatbin ")  # noqa: PT017 - it need not be raised
        return
    for packed in found:
        for e in packed.entries:
            assert 0 <= e.offset <= e.offset + e.stored <= len(good)


def test_a_cubin_skeleton_is_a_cubin() -> None:
    # What the tests build with is itself a thing that can be wrong.
    assert cubin(90)[:4] == b"\x7fELF"
    assert GOOD[:8] == fatbin.HEADER
