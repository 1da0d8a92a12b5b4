"""Open a file of the file system and read its device code, whatever it turns out to be."""

from __future__ import annotations

import mmap
import os
import stat
from typing import IO

from envcheck.core.device_file import DeviceFile
from envcheck.guest import device_code
from envcheck.guest.device_code import Inflate


def read_place(absolute: str, path: str, inflate: Inflate) -> DeviceFile:
    """Read one file of an environment; what cannot be read is a problem of that file."""
    if path.endswith((".a", ".o")):
        # Opened by linkers, not by jobs; a scan of the file itself does read it.
        return DeviceFile(path=path, format="other", size=0, skipped="a linker's input")
    try:
        mode = os.stat(absolute).st_mode
        if not stat.S_ISREG(mode):
            reason = "the folder cannot be read" if stat.S_ISDIR(mode) else "not a regular file"
            return DeviceFile(path=path, format="other", size=0, problem=reason)
        with open_regular(absolute) as handle:
            return read_code(handle, path, inflate)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return DeviceFile(path=path, format="other", size=0, problem=reason)


def open_regular(path: str) -> IO[bytes]:
    """Open a file without waiting, should it have become a FIFO since somebody looked."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return open(descriptor, "rb", buffering=0)


def read_code(handle: IO[bytes], name: str, inflate: Inflate) -> DeviceFile:
    """Map a file and read its device code; raises OSError and ValueError where it cannot be mapped.

    Nothing that a file holds may hide the other files: should a reader fail at it in a way
    that nobody foresaw, that is a problem of this file too.
    """
    if not handle.read(1):
        return device_code.read(b"", path=name, inflate=inflate)
    with mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as view:
        try:
            return device_code.read(view, path=name, inflate=inflate)
        except Exception as error:
            if os.environ.get("ENVCHECK_DEBUG"):
                raise
            reason = f"envcheck failed at it, please report: {type(error).__name__}: {error}"
            return DeviceFile(path=name, format="other", size=len(view), problem=reason)
