"""Which files some process has open for writing, or mapped so that it can write to them.

Linux lists both below /proc, for the processes of this user; root sees those of all.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator

FileId = tuple[int, int]
"""Device and inode."""

_FLAGS = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
# address, permissions with write and shared, offset, device, inode
_SHARED = re.compile(rb"^\S+ .w.s \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)", re.MULTILINE)


def written_to(wanted: Collection[FileId]) -> set[FileId]:
    """Return those of some files that a process may be writing to at this moment."""
    own = str(os.getpid())
    found: set[FileId] = set()
    for process in os.listdir("/proc"):
        if process.isdecimal() and process != own:
            found.update(each for each in _of(f"/proc/{process}") if each in wanted)
    return found


def _of(process: str) -> Iterator[FileId]:
    """Yield what one process can write to; nothing once it is gone, or is another user's."""
    try:
        numbers = os.listdir(f"{process}/fd")
        with open(f"{process}/maps", "rb") as file:
            maps = file.read()
    except OSError:
        return
    for major, minor, inode in _SHARED.findall(maps):
        yield os.makedev(int(major, 16), int(minor, 16)), int(inode)
    for number in numbers:
        try:
            status = os.stat(f"{process}/fd/{number}")
            if not stat.S_ISREG(status.st_mode):
                continue
            with open(f"{process}/fdinfo/{number}", "rb") as file:
                flags = _FLAGS.search(file.read())
        except OSError:
            continue  # closed in the meantime
        if flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
            yield status.st_dev, status.st_ino
