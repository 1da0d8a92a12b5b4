"""Which files of a folder are finished: unchanged, closed, and not named as something on its way."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

# How programs name what they have not finished writing, or did not mean to keep.
_ON_ITS_WAY = ("*.tmp", "*.temp", "*.part", "*.partial", "*.incomplete", "*.swp", ".nfs*")
LINK, SPECIAL, NAME = "a link", "no regular file", "its name says that it is not finished"
OWN = "the export's own file has that name"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes when a file is written to; its time of change cannot be set back."""

    device: int
    inode: int
    size: int
    modified: int
    """Nanoseconds, as the other."""
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a file."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A folder at one moment; paths are relative to it."""

    files: Mapping[str, Stamp]
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """What is never copied, and why."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Folders that could not be looked into, and why."""


def look(root: str, own: Collection[str]) -> Look:
    """Walk a folder without following a link; raises OSError if it is not there.

    `own` are the paths that the export uses itself in its target.
    """
    files: dict[str, Stamp] = {}
    passed_over: dict[str, str] = {}
    unread: dict[str, str] = {}
    os.stat(root)

    def unreadable(error: OSError) -> None:
        unread[os.path.relpath(str(error.filename), root)] = error.strerror or str(error)

    for folder, names, leaves in os.walk(root, onerror=unreadable):
        for name in [*names, *leaves]:
            path = os.path.relpath(os.path.join(folder, name), root)
            try:
                status = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # gone since it was listed: no longer a result
            except OSError as error:
                unread[path] = error.strerror or str(error)
                continue
            why = OWN if path in own else _why_not(name, status)
            if why:
                passed_over[path] = why
                if name in names:
                    names.remove(name)
            elif stat.S_ISREG(status.st_mode):
                files[path] = Stamp.of(status)
    return Look(files=files, passed_over=passed_over, unread=unread)


def _why_not(name: str, status: os.stat_result) -> str:
    """Say why something is never copied; empty for a folder or file that may be."""
    if stat.S_ISLNK(status.st_mode):
        return LINK
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return SPECIAL
    return NAME if any(fnmatch.fnmatchcase(name, pattern) for pattern in _ON_ITS_WAY) else ""


def open_below(root: str, path: str) -> int:
    """Open a regular file below a folder for reading, with no link on the way; raises OSError."""
    *folders, name = path.split(os.sep)
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(folder, flags, dir_fd=here)
            os.close(here)
            here = inner
        # Not to wait for a writer, should it have become a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)
