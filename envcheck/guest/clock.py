"""The wall clock, held against boot time and the times of envcheck's own files."""

from __future__ import annotations

import os
import time

import envcheck
from envcheck.core.host import Clock
from envcheck.guest.kernel_files import text


def look(package: str = os.path.dirname(os.path.abspath(envcheck.__file__))) -> Clock:
    """Return what the clock says, and by how much other times are ahead of it."""
    booted, now = _booted(), time.time()
    newest = _newest(package)
    return Clock(
        now=round(now, 3),
        boot=None if booted is None else round(booted - now, 1),
        own=None if newest is None else round(newest - now, 1),
    )


def _booted() -> float | None:
    """Return the time that boot time and uptime together give."""
    uptime = (text("/proc/uptime") or "").partition(" ")[0]
    for line in (text("/proc/stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "btime" and value.isdecimal() and uptime.replace(".", "", 1).isdecimal():
            return int(value) + float(uptime)
    return None


def _newest(package: str) -> float | None:
    found = []
    for folder, _, files in os.walk(package):
        for name in files:
            # What is run compiles them anew: those are of now.
            if not name.endswith(".pyc"):
                try:
                    found.append(os.stat(os.path.join(folder, name)).st_mtime)
                except OSError:  # removed meanwhile
                    continue
    return max(found, default=None)
