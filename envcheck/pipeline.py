"""The stretches of the pipeline that the commands are made of."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from envcheck import sources
from envcheck.core.model import DeviceFile, Inventory
from envcheck.sources import Progress


def scan(paths: list[str], progress: Progress) -> Inventory:
    """Read files, directories, wheels and archives; raises FileUnavailable when none is there."""
    files: dict[str, DeviceFile] = {}
    passed_over = 0
    for seen in sources.read_paths(paths, progress):
        if seen.file is None:
            passed_over += 1
        elif files.setdefault(seen.file.path, seen.file) != seen.file:
            # An archive may hold a name twice; which one an installer takes is its affair.
            files[seen.file.path] = DeviceFile(
                path=seen.file.path,
                format="other",
                size=0,
                problem="its archive holds several files of this name, and they differ",
            )
    return Inventory(source="files", files=tuple(files.values()), passed_over=passed_over)


def total_size(paths: list[str]) -> int:
    """Return the bytes of all files that a scan of the paths will come across, for a bar."""
    walked = (os.path.join(f, n) for p in paths for f, _, names in os.walk(p) for n in names)
    return sum(map(_size, [*filter(os.path.isfile, paths), *walked]))


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
        progress(place.path, 0)
        files.append(_read(place.absolute, place.path))
        progress(place.path, sizes[place.absolute])
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
        mode = os.stat(absolute).st_mode
        if not stat.S_ISREG(mode):
            reason = "the folder cannot be read" if stat.S_ISDIR(mode) else "not a regular file"
            return DeviceFile(path=path, format="other", size=0, problem=reason)
        with sources.open_regular(absolute) as handle:
            return sources.read_code(handle, path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return DeviceFile(path=path, format="other", size=0, problem=reason)
