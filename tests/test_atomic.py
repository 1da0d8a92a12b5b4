"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from envcheck import atomic
from envcheck.errors import FileUnavailable


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    atomic.write(path, b"first")
    assert path.read_bytes() == b"first"
    atomic.write(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_whatever_fails_the_old_file_stays_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(FileUnavailable, match=r"out\.json: cannot be written: No space left"):
        atomic.write(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_the_old_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        atomic.write(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    seen: list[bytes] = []
    real = os.replace

    def look(source: str, target: str) -> None:
        seen.append(path.read_bytes())
        seen.append(Path(source).read_bytes())
        real(source, target)

    monkeypatch.setattr(os, "replace", look)
    atomic.write(path, b"new")
    assert seen == [b"old", b"new"]


def test_a_new_file_gets_the_mode_of_the_umask_and_an_old_one_keeps_its_own(
    tmp_path: Path,
) -> None:
    before = os.umask(0o027)
    try:
        atomic.write(tmp_path / "new", b"")
        secret = tmp_path / "secret"
        secret.touch(0o600)
        atomic.write(secret, b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_link_keeps_pointing_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file = tmp_path / "real" / "out.json"
    file.write_bytes(b"old")
    link = tmp_path / "link.json"
    link.symlink_to(file)
    atomic.write(link, b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"


def test_what_is_no_file_is_refused_and_stays(tmp_path: Path) -> None:
    fifo, folder = tmp_path / "fifo", tmp_path / "folder"
    os.mkfifo(fifo)
    folder.mkdir()
    for place in (fifo, folder, tmp_path / "gone" / "out.json"):
        with pytest.raises(FileUnavailable) as caught:
            atomic.write(place, b"x")
        assert str(place) in caught.value.message
        assert caught.value.remedy
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [fifo, folder]
