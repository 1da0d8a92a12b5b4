"""A folder to export to: each file is written aside, verified, and then gets its name."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from envcheck.errors import FileUnavailable
from envcheck.exporting import digests
from envcheck.exporting.looking import Stamp, open_below
from envcheck.exporting.target import CHANGED, ENDED, Delivery, NotBrought

ASIDE = ".envcheck-export"
"""Folder in the target where the one file lies that is on its way."""
_PIECE = 1 << 20


class Folder:
    """A folder on a file system of this machine."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._aside = os.path.join(path, ASIDE)
        self._lock = -1
        self._digests: dict[str, str] = {}
        # What is known to be there: its source as it was, and itself as it was verified.
        self._known: dict[str, tuple[Stamp, Stamp]] = {}

    def prepare(self) -> None:
        """Make the folder and try to write there; raises FileUnavailable."""
        try:
            os.makedirs(self._aside, exist_ok=True)
            self._lock = os.open(self._aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(self._open_aside())
            os.unlink(self._part)
            self._digests = _read_manifest(os.path.join(self.name, digests.NAME))
        except BlockingIOError:
            message = f"{self.name}: another export writes there"
            raise FileUnavailable(message, remedy="give each job a folder of its own") from None
        except OSError as error:
            message = f"{self.name}: cannot be exported to: {error.strerror or error}"
            raise FileUnavailable(message, remedy="--to a folder that can be written to") from None

    def close(self) -> None:
        """Let others export there."""
        if self._lock >= 0:
            os.close(self._lock)

    def deliver(
        self, root: str, files: Mapping[str, Stamp], cancelled: Callable[[], bool]
    ) -> Delivery:
        """Copy what is not there yet; what fails is told, and the rest is copied."""
        delivery = Delivery()
        if not os.path.isdir(self._aside):
            # Not made anew: below an empty mount point it would fill another disk.
            delivery.failed[""] = f"{self.name} is gone, or no longer what it was"
            return delivery
        for path, stamp in files.items():
            why = self._why_not_brought(root, path, stamp, delivery, cancelled)
            if why:
                delivery.failed[path] = why
            if cancelled():
                delivery.failed[""] = ENDED
                break
        self._note(delivery)
        return delivery

    def _why_not_brought(
        self,
        root: str,
        path: str,
        stamp: Stamp,
        delivery: Delivery,
        cancelled: Callable[[], bool],
    ) -> str:
        """Bring one file there; say why that failed, empty where it did not."""
        try:
            self._bring(root, path, stamp, delivery, cancelled)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _bring(
        self,
        root: str,
        path: str,
        stamp: Stamp,
        delivery: Delivery,
        cancelled: Callable[[], bool],
    ) -> None:
        """Bring one file there unless it is there; raises OSError."""
        there = self._stamp(path)
        if there is not None and self._known.get(path) == (stamp, there):
            return
        try:
            source = open_below(root, path)
        except FileNotFoundError:
            return  # the job has removed it since: no longer a result
        try:
            _require_unchanged(source, stamp)
            digest = self._same(source, path, stamp, there, cancelled)
            if digest is None:
                digest = self._copy(source, path, stamp, cancelled)
                delivery.copied += 1
                delivery.size += stamp.size
        finally:
            os.close(source)
        there = self._stamp(path)
        if there is not None:
            self._known[path] = (stamp, there)
        delivery.arrived[path] = digest

    def _same(
        self,
        source: int,
        path: str,
        stamp: Stamp,
        there: Stamp | None,
        cancelled: Callable[[], bool],
    ) -> str | None:
        """Return the hash if the target has these very bytes already."""
        if there is None or there.size != stamp.size:
            return None
        with open(os.path.join(self.name, path), "rb") as target:
            found = hashed(target.fileno(), cancelled)
        wanted = hashed(source, cancelled)
        os.lseek(source, 0, os.SEEK_SET)
        _require_unchanged(source, stamp)
        return wanted if wanted == found else None

    def _copy(self, source: int, path: str, stamp: Stamp, cancelled: Callable[[], bool]) -> str:
        """Write a file aside, verify what is on the disk, and give it its name."""
        room = os.statvfs(self._aside)
        if stamp.size > room.f_bavail * room.f_frsize:
            # Not tried: whoever else writes there would find no room meanwhile.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        target = self._open_aside()
        try:
            digest = _pour(source, target, cancelled)
            _require_unchanged(source, stamp)
            _verify(target, digest, cancelled)
            final = os.path.join(self.name, path)
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.replace(self._part, final)
        except BaseException:
            # It may be gone with the whole target.
            with suppress(OSError):
                os.unlink(self._part)
            raise
        finally:
            os.close(target)
        return digest

    def _note(self, delivery: Delivery) -> None:
        """Write MANIFEST.sha256 anew, once the names of what arrived are on the disk."""
        noted = {**self._digests, **delivery.arrived}
        if noted == self._digests and not self._is_lacking(digests.NAME):
            return
        try:
            for folder in {os.path.dirname(path) for path in delivery.arrived}:
                _sync(os.path.join(self.name, folder))
            handle = self._open_aside()
            with os.fdopen(handle, "wb") as file:
                file.write(digests.write(noted))
                file.flush()
                os.fsync(handle)
            os.replace(self._part, os.path.join(self.name, digests.NAME))
            _sync(self.name)
        except OSError as error:
            delivery.failed[digests.NAME] = error.strerror or str(error)
        else:
            self._digests = noted

    @property
    def _part(self) -> str:
        return os.path.join(self._aside, "part")

    def _open_aside(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._part, flags, 0o666)

    def _is_lacking(self, path: str) -> bool:
        return bool(self._digests) and self._stamp(path) is None

    def _stamp(self, path: str) -> Stamp | None:
        """Return the stamp of a regular file in the target; None where there is none."""
        try:
            status = os.lstat(os.path.join(self.name, path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stamp.of(status) if stat.S_ISREG(status.st_mode) else None


def _read_manifest(path: str) -> dict[str, str]:
    """Return what an earlier export noted; raises OSError for what is no such list."""
    try:
        with open(path, "rb") as file:
            return digests.read(file.read())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        message = f"{digests.NAME} there is not ours: {error}"
        raise OSError(message) from None


def _require_unchanged(source: int, stamp: Stamp) -> None:
    if Stamp.of(os.fstat(source)) != stamp:
        raise NotBrought(CHANGED)


def _verify(target: int, digest: str, cancelled: Callable[[], bool]) -> None:
    """Have a file written to the disk, and read it back from there; raises OSError."""
    os.fsync(target)
    # Else what is read back is what stands in memory.
    os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(target, 0, os.SEEK_SET)
    if hashed(target, cancelled) != digest:
        raise OSError(errno.EIO, "what was read back is not what was written")


def _pour(source: int, target: int, cancelled: Callable[[], bool]) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(source, cancelled):
        digest.update(piece)
        left = memoryview(piece)
        while left:
            left = left[os.write(target, left) :]
    return digest.hexdigest()


def hashed(handle: int, cancelled: Callable[[], bool]) -> str:
    """Return the SHA-256 of a file from where it stands; raises OSError."""
    digest = hashlib.sha256()
    for piece in _pieces(handle, cancelled):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(handle: int, cancelled: Callable[[], bool]) -> Iterator[bytes]:
    while piece := os.read(handle, _PIECE):
        if cancelled():
            raise NotBrought(ENDED)
        yield piece


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
