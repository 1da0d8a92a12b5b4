"""Static libraries against the binutils of this machine's format rules, and lying headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from build_elf import member
from hypothesis import given
from hypothesis import strategies as st
from inventories import DATA

from envcheck.guest import archive
from envcheck.guest.elf import Malformed

MAGIC = b"!<arch>\n"


def contents(data: bytes) -> list[bytes]:
    return [data[start : start + size] for start, size in archive.members(data)]


def test_members_of_odd_length_are_padded() -> None:
    data = MAGIC + member(b"a/", b"abc") + member(b"b/", b"") + member(b"c/", b"defg")
    assert contents(data) == [b"abc", b"", b"defg"]


def test_bsd_puts_a_long_name_before_the_bytes() -> None:
    name = b"a-very-long-member-name.o\0\0\0"
    data = MAGIC + member(b"#1/%d" % len(name), name + b"bytes")
    assert contents(data) == [b"bytes"]


def test_gnu_puts_long_names_into_a_table() -> None:
    data = MAGIC + member(b"/", b"sym!") + member(b"//", b"long-name.o/\n") + member(b"/0", b"x")
    assert contents(data) == [b"sym!", b"long-name.o/\n", b"x"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (member(b"a/", b"abc", size=b"99"), "99 bytes are past the end"),
        (member(b"a/", b"abc", size=b"-1"), "size field"),
        (member(b"a/", b"abc", size=b"9999999999"), "past the end"),
        (member(b"a/", b"abc", size=b"0x3"), "size field"),
        (member(b"a/", b"abc", size=b" "), "size field"),
        (member(b"a/", b"abc", size=b"1_0"), "size field"),
        (member(b"a/", b"abcd")[:-2], "past the end"),
        (member(b"a/", b"ab") + b"cut header", "file ends inside it"),
        (member(b"a/", b"ab").replace(b"`\n", b"``"), "ar member header at 8"),
        (member(b"#1/9", b"short"), "is past the end"),
        (member(b"/7", b"ab"), "is past the end"),
        (member(b"//", b"name/\n") + member(b"/99", b"ab"), "is past the end"),
    ],
)
def test_a_header_that_lies_is_named(data: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        contents(MAGIC + data)


def test_nothing_but_the_magic_is_an_archive_without_members() -> None:
    assert contents(MAGIC) == []


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_what_was_written_is_read(parts: list[bytes]) -> None:
    assert contents(MAGIC + b"".join(member(b"m/", p) for p in parts)) == parts


@given(st.binary(max_size=200))
def test_any_bytes_end(tail: bytes) -> None:
    data = MAGIC + member(b"a/", b"ab") + tail
    try:
        found = contents(data)
    except Malformed as error:
        assert re.match(r"ar member", str(error))  # noqa: PT017
        return
    assert found[0] == b"ab"


@pytest.mark.skipif(shutil.which("ar") is None, reason="binutils are not installed")
@pytest.mark.parametrize("form", ["gnu", "many"])
def test_archives_of_binutils(tmp_path: Path, form: str) -> None:
    count = 3 if form == "gnu" else 500
    paths = []
    for number in range(count):
        path = tmp_path / f"{'long-member-name-' * (number % 3)}{number}.o"
        path.write_bytes(b"%d" % number * (number % 7 + 1))
        paths.append(path)
    made = tmp_path / "made.a"
    subprocess.run(["ar", "rcsD", made, *paths], check=True)
    found = contents(made.read_bytes())
    assert found[-count:] == [p.read_bytes() for p in paths]


@pytest.mark.skipif(shutil.which("ar") is None, reason="binutils are not installed")
@pytest.mark.parametrize("name", ["one.a", "both.a"])
def test_sample_archives_have_the_members_that_ar_extracts(name: str, tmp_path: Path) -> None:
    path = (DATA / "truth-extra" / "objects" / name).resolve()
    subprocess.run(["ar", "x", path], check=True, cwd=tmp_path)
    listed = subprocess.run(["ar", "t", path], check=True, capture_output=True, text=True)
    expected = [(tmp_path / line).read_bytes() for line in listed.stdout.split()]
    found = contents(path.read_bytes())
    assert found[-len(expected) :] == expected
