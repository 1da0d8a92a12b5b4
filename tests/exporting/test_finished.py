"""Which files are finished: asked of a real folder, and of real processes that write to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from envcheck.exporting import looking, writers
from envcheck.exporting.looking import Stamp, look, open_below

# By the C library, for Python's own mmap keeps the file open as well.
_MAP = (
    "import ctypes, mmap, os, sys; n = os.open(sys.argv[1], os.{open});"
    " c = ctypes.CDLL(None).mmap; c.restype = ctypes.c_void_p;"
    " c.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long];"
    " assert c(None, 7, {protection}, mmap.{flags}, n, 0) != 2**64 - 1; os.close(n)"
)
HOLD = {
    "writing": "import sys; f = open(sys.argv[1], 'r+b')",
    "appending": "import sys; f = open(sys.argv[1], 'ab')",
    "reading": "import sys; f = open(sys.argv[1], 'rb')",
    "mapped": _MAP.format(open="O_RDWR", protection=3, flags="MAP_SHARED"),
    "mapped to read": _MAP.format(open="O_RDONLY", protection=1, flags="MAP_SHARED"),
    "mapped privately": _MAP.format(open="O_RDWR", protection=3, flags="MAP_PRIVATE"),
}


def test_files_are_found_below_folders_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "new\nline").write_bytes(b"12345")
    (tmp_path / "MANIFEST.sha256").write_bytes(b"")
    (tmp_path / "a" / "MANIFEST.sha256").write_bytes(b"")
    for name in ("x.tmp", "x.part", "x.partial", ".nfs000"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "dir.tmp").mkdir()
    (tmp_path / "dir.tmp" / "inside").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to(tmp_path)
    seen = look(str(tmp_path), ["MANIFEST.sha256"])
    assert set(seen.files) == {"a/new\nline", "a/MANIFEST.sha256"}
    assert seen.files["a/new\nline"].size == 5
    assert seen.passed_over == {
        "MANIFEST.sha256": looking.OWN,
        **dict.fromkeys(("x.tmp", "x.part", "x.partial", ".nfs000", "dir.tmp"), looking.NAME),
        **dict.fromkeys(("pipe", "socket"), looking.SPECIAL),
        **dict.fromkeys(("link", "loop"), looking.LINK),
    }


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        look(str(tmp_path / "none"), ())


def test_a_file_changed_with_its_time_and_size_kept_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"one")
    os.utime(path, (5, 5))
    before = look(str(tmp_path), ()).files["x"]
    path.write_bytes(b"two")
    os.utime(path, (5, 5))
    after = look(str(tmp_path), ()).files["x"]
    assert (before.size, before.modified) == (after.size, after.modified)
    assert before != after


@pytest.mark.parametrize(
    ("how", "busy"),
    [("writing", True), ("appending", True), ("mapped", True),
     ("reading", False), ("mapped to read", False), ("mapped privately", False)],
)  # fmt: skip
def test_whoever_can_write_to_a_file_is_seen(tmp_path: Path, how: str, busy: bool) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    code = f"{HOLD[how]}; print('ready', flush=True); sys.stdin.read()"
    stamp = Stamp.of(path.stat())
    wanted = {(stamp.device, stamp.inode)}
    assert writers.written_to(wanted) == set()
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        found = writers.written_to(wanted)
        process.communicate()
    assert (found == wanted) is busy
    assert writers.written_to(wanted) == set()


def test_no_link_is_followed_on_the_way_to_a_file(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "real", outside):
        folder.mkdir(parents=True)
        (folder / "secret").write_bytes(folder.name.encode())
    handle = open_below(str(root), "real/secret")
    assert os.read(handle, 9) == b"real"
    os.close(handle)
    (root / "swapped").symlink_to(outside)
    (root / "leaf").symlink_to(outside / "secret")
    for path in ("swapped/secret", "leaf"):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            open_below(str(root), path)
