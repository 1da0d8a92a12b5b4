"""The stretches of the pipeline that the commands are made of."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from envcheck.core.model import DeviceFile, Inventory
from envcheck.guest import device_code
from envcheck.inflate import inflate
from envcheck.sources import read_paths

Progress = Callable[[str, int], None]
"""Called before a file is read, with its name and its bytes."""


def scan(paths: list[str], progress: Progress) -> Inventory:
    """Read files, directories, wheels and archives; raises FileUnavailable when none is there."""
    seen = list(read_paths(paths, progress))
    files = tuple(s.file for s in seen if s.file is not None)
    return Inventory(source="files", files=files, passed_over=len(seen) - len(files))


def collect(python: str, progress: Progress, announce: Callable[[int], None]) -> Inventory:
    """Read the environment of an interpreter; raises FileUnavailable and EnvcheckError.

    `announce` is told the total bytes before the first file is read.
    """
    from envcheck.engine import local

    collected = local.collect(local.resolve(python))
    sizes = {place.absolute: _size(place.absolute) for place in collected.places}
    announce(sum(sizes.values()))
    files = []
    for place in collected.places:
        progress(place.path, sizes[place.absolute])
        files.append(_read(place.absolute, place.path))
    return Inventory(source="environment", files=tuple(files), environment=collected.environment)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _read(absolute: str, path: str) -> DeviceFile:
    """Read one file of an environment; what cannot be read is a problem of that file."""
    if path.endswith((".a", ".o")):
        # Opened by linkers, not by jobs; a scan of the file itself does read it.
        size = _size(absolute)
        return DeviceFile(path=path, format="other", size=size, skipped="a linker's input")
    try:
        with open(absolute, "rb", buffering=0) as handle:
            if os.fstat(handle.fileno()).st_size == 0:
                return device_code.read(b"", path=path, inflate=inflate)
            with mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as view:
                return device_code.read(view, path=path, inflate=inflate)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return DeviceFile(path=path, format="other", size=0, problem=reason)
