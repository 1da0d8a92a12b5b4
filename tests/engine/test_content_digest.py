"""The content digest: what it counts, what it does not, and that its value is the written rule."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from envcheck.engine import content_digest
from envcheck.engine.content_digest import Content

# `printf hello | sha256sum`
HELLO = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    stream.seek(0)
    return stream


def of(*members: tuple[tarfile.TarInfo, bytes]) -> Content:
    return content_digest.of_export(archive(*members))


def test_the_value_is_the_rule_written_out_by_hand() -> None:
    content = of(
        (member("opt", tarfile.DIRTYPE, mode=0o755), b""),
        (member("opt/a", mode=0o644, uid=1000, gid=7), b"hello"),
        (member("opt/b", tarfile.SYMTYPE, linkname="a"), b""),
    )
    written = (
        "envcheck/content/v1\n"
        "opt\tfolder\t0755\t0:0\t\t\n"
        f"opt/a\tfile\t0644\t1000:7\t\t{HELLO}\n"
        "opt/b\tlink\t0777\t0:0\ta\t\n"
    )
    assert content.digest == "sha256:" + hashlib.sha256(written.encode()).hexdigest()


def test_the_value_of_nothing() -> None:
    # `printf 'envcheck/content/v1\n' | sha256sum`
    value = "712d97e80b343bb6149f9bb11bd66bda5c5ae89d73c6af807f2bc7ef330ae3c2"
    assert of().digest == f"sha256:{value}"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mode": 0o755}, "mode 0644, 0755"),
        ({"mode": 0o4644}, "mode 0644, 4644"),
        ({"uid": 5}, "owner 0:0, 5:0"),
        ({"gid": 5}, "owner 0:0, 0:5"),
    ],
)
def test_what_counts(change: dict[str, object], reason: str) -> None:
    first, second = of((member("a"), b"x")), of((member("a", **change), b"x"))
    assert first.digest != second.digest
    assert [d.reason for d in content_digest.differences(first, second)] == [reason]


def test_bytes_count() -> None:
    first, second = of((member("a"), b"x")), of((member("a"), b"y"))
    assert first.digest != second.digest
    assert [(d.path, d.reason) for d in content_digest.differences(first, second)] == [
        ("a", "bytes")
    ]


def test_where_a_link_points_counts() -> None:
    first = of((member("a", tarfile.SYMTYPE, linkname="x"), b""))
    second = of((member("a", tarfile.SYMTYPE, linkname="y"), b""))
    assert [d.reason for d in content_digest.differences(first, second)] == ["target x, y"]


def test_which_device_it_is_counts() -> None:
    first = of((member("x/null", tarfile.CHRTYPE, devmajor=1, devminor=3), b""))
    second = of((member("x/null", tarfile.CHRTYPE, devmajor=1, devminor=5), b""))
    assert [d.reason for d in content_digest.differences(first, second)] == ["target 1:3, 1:5"]


def test_a_path_that_only_one_has() -> None:
    first = of((member("a"), b""), (member("b"), b""))
    second = of((member("b"), b""), (member("c"), b""))
    found = [(d.path, d.reason) for d in content_digest.differences(first, second)]
    assert found == [("a", "only in the first"), ("c", "only in the second")]


def test_times_names_and_order_do_not_count() -> None:
    one = of((member("a", mtime=1, uname="root", gname="root"), b"x"), (member("b", mtime=2), b"y"))
    other = of((member("./b", mtime=3), b"y"), (member("./a", mtime=4), b"x"))
    assert one.digest == other.digest


def test_a_hard_link_counts_as_the_file() -> None:
    linked = of((member("a"), b"hello"), (member("b", tarfile.LNKTYPE, linkname="./a"), b""))
    copied = of((member("a"), b"hello"), (member("b"), b"hello"))
    assert linked.digest == copied.digest
    assert linked.entries[b"b"].content == HELLO


def test_what_the_engine_puts_into_each_container_does_not_count() -> None:
    engines = ("dev/console", "proc", "sys", ".dockerenv", "etc/hosts", "etc/resolv.conf")
    with_them = of(*[(member(name), b"x") for name in (*engines, "etc/passwd", "device")])
    assert with_them.digest == of((member("etc/passwd"), b"x"), (member("device"), b"x")).digest


def test_no_name_can_pretend_to_be_a_second_line() -> None:
    empty = "sha256:" + hashlib.sha256(b"").hexdigest()
    trick = f"a\tfile\t0644\t0:0\t\t{empty}\nb"
    assert of((member(trick), b"")).digest != of((member("a"), b""), (member("b"), b"")).digest
    # And the escape itself is no other name's escape.
    assert of((member("a\\n"), b"")).digest != of((member("a\n"), b"")).digest


def test_a_name_that_is_no_utf8_counts_with_its_bytes() -> None:
    name = os.fsdecode(b"caf\xe9")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(member(name))
    stream.seek(0)
    assert list(content_digest.of_export(stream).entries) == [b"caf\xe9"]


def test_a_folder_and_its_archive_have_the_same_digest(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir(mode=0o750)
    (tmp_path / "sub" / "file").write_bytes(b"hello")
    (tmp_path / "sub" / "link").symlink_to("file")
    os.link(tmp_path / "sub" / "file", tmp_path / "twice")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(b"")
    (tmp_path / "suid").write_bytes(b"")
    (tmp_path / "suid").chmod(0o4711)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.add(tmp_path, arcname=".")
    stream.seek(0)
    folder = content_digest.of_folder(str(tmp_path))
    assert folder.entries == content_digest.of_export(stream).entries
    assert folder.entries[b"twice"].content == HELLO


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        content_digest.of_folder(str(tmp_path / "missing"))


@pytest.mark.parametrize("cut", [100, 700])
def test_a_cut_archive_is_an_error(cut: int) -> None:
    whole = archive((member("a"), b"x" * 2000)).getvalue()
    with pytest.raises(ValueError, match=r"malformed|ends"):
        content_digest.of_export(io.BytesIO(whole[:cut]))


def test_an_archive_that_ends_between_two_members_is_an_error() -> None:
    """The engine that dies in the middle of an export must not give a digest of a half."""
    whole = archive((member("a"), b"x" * 512)).getvalue()
    with pytest.raises(ValueError, match="ends"):
        content_digest.of_export(io.BytesIO(whole[:1024]))


def test_a_hard_link_to_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="'b': hard link to 'a'"):
        of((member("b", tarfile.LNKTYPE, linkname="a"), b""))


def test_differences_show_no_control_characters() -> None:
    found = content_digest.differences(of(), of((member("a\x1b[31m"), b"")))
    assert [d.path for d in found] == ["a\\x1b[31m"]


class Zeros(io.RawIOBase):
    """A tar of one file of `size` zero bytes, made as it is read."""

    def __init__(self, size: int) -> None:
        info = member("big")
        info.size = size
        self._head = info.tobuf()
        self._left = len(self._head) + size + 1024
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        size = min(size, self._left)
        piece = self._head[self._at : self._at + size]
        self._at += size
        self._left -= size
        return piece + bytes(size - len(piece))


def test_a_large_file_is_streamed() -> None:
    seen: list[int] = []
    tracemalloc.start()
    try:
        content_digest.of_export(Zeros(256 << 20), seen.append)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(seen) == 256 << 20
    assert peak < 16 << 20
