"""The disk where the data will lie: what it has left, what it takes, and how fast.

The work is done in a child, because a file system over a network may hang. What is written has no
name, so it is gone with the child, whatever becomes of it; the small files are in one folder.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from envcheck.core.host import Disk
from envcheck.core.names import visible
from envcheck.guest import filesystems, trial, words

_MOST = 256 << 20
_STEP = 4 << 20
_FIRST, _SYNC = 1 << 20, 32 << 20
"""Written between two waits for the disk, more from one to the next: a slow one takes little, and
on a fast one the waits do not count."""
_FILES = 200
_PATIENCE = 5.0
"""Seconds more for a child that would have ended by itself: only one that hangs takes them."""


def look(folder: str, *, seconds: float) -> tuple[Disk, str]:
    """Return what is known of the disk, and why something is not; never raises."""
    ended = trial.run(lambda: _facts(folder), deadline=_PATIENCE)
    disk = Disk(folder=visible(os.path.abspath(folder)))
    if not isinstance(ended.value, dict):
        return disk, words.reason(ended.outcome)
    disk = replace(disk, **ended.value)
    name, each = f".envcheck-{os.getpid()}", min(2.0, seconds / 4)
    deadline = seconds + _PATIENCE
    ended = trial.run(lambda: _tried(folder, name, disk.free, each), deadline=deadline)
    if not isinstance(ended.value, dict):
        trial.run(lambda: _remove(folder, name), deadline=each)
        return disk, words.reason(ended.outcome)
    return replace(disk, **ended.value), ""


def _facts(folder: str) -> dict[str, Any]:
    found = filesystems.nearest(folder)
    status, kind = os.statvfs(found), filesystems.kind(found)
    return {
        "folder": visible(found),
        "missing": found != os.path.abspath(folder),
        "filesystem": kind,
        "network": filesystems.remote(kind),
        "read_only": bool(status.f_flag & os.ST_RDONLY),
        "free": filesystems.free(found),
        "inodes": status.f_favail if status.f_files else None,
    }


def _tried(folder: str, name: str, free: int | None, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    place = filesystems.nearest(folder)
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as handle:
            found["ahead"] = _ahead(handle.fileno())
            # What others write meanwhile must still find room.
            size = _MOST if free is None else min(_MOST, free // 2)
            _write(handle.fileno(), max(size, _STEP), seconds, found)
            found |= _read(handle.fileno(), found["written"], seconds)
        found["files_rate"] = _many(os.path.join(place, name), seconds)
    except OSError as error:
        found["refused"] = filesystems.refusal(error)
    return found


def _ahead(descriptor: int) -> float:
    before = time.time()
    os.write(descriptor, b"x")
    after, stamp = time.time(), os.fstat(descriptor).st_mtime
    # Local file systems take the time of the last tick, which is a little less.
    return round(stamp - after if stamp > after else min(stamp - before, 0.0), 3)


def _write(descriptor: int, size: int, seconds: float, found: dict[str, Any]) -> None:
    # Nothing that a file system could compress or leave out.
    block, written, step = os.urandom(_STEP), 0, _FIRST
    started = time.monotonic()
    found["written"] = 0
    while written < size and time.monotonic() - started < seconds:
        end = min(written + step, size)
        while written < end:
            written += os.pwrite(descriptor, block[: end - written], written)
            found["written"] = written
        os.fdatasync(descriptor)
        step = min(2 * step, _SYNC)
    os.fsync(descriptor)
    found["write_rate"] = _rate(written, started)


def _read(descriptor: int, size: int, seconds: float) -> dict[str, Any]:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(-1, _STEP) as buffer:  # memory that begins at a page, as O_DIRECT wants it
        try:
            other = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT)
        except OSError:  # tmpfs and some others know no O_DIRECT
            return _rated(lambda at: os.preadv(descriptor, [buffer], at), size, seconds, False)
        try:
            return _rated(lambda at: os.preadv(other, [buffer], at), size, seconds, True)
        except OSError:
            return _rated(lambda at: os.preadv(descriptor, [buffer], at), size, seconds, False)
        finally:
            os.close(other)


def _rated(read: Callable[[int], int], size: int, seconds: float, direct: bool) -> dict[str, Any]:  # noqa: FBT001
    started, at = time.monotonic(), 0
    while at + _STEP <= size and time.monotonic() - started < seconds:
        done = read(at)
        if not done:
            break
        at += done
    return {"read_rate": _rate(at, started) if at else None, "direct": direct}


def _many(place: str, seconds: float) -> float | None:
    """Return how many small files a second are made, asked for and removed."""
    os.mkdir(place, 0o700)
    try:
        started, done = time.monotonic(), 0
        while done < _FILES and time.monotonic() - started < seconds:
            path = os.path.join(place, str(done))
            with open(path, "wb") as handle:
                handle.write(b"x" * 1024)
            os.stat(path)
            os.unlink(path)
            done += 1
        return _rate(done, started)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _remove(folder: str, name: str) -> None:
    """Remove what a child that was killed may have left."""
    shutil.rmtree(os.path.join(filesystems.nearest(folder), name), ignore_errors=True)


def _rate(amount: int, started: float) -> float:
    return round(amount / max(time.monotonic() - started, 1e-6), 1)
