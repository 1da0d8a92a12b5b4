"""The wall clock, held against boot time and the times of envcheck's own files.

Of files the time is taken at which they came to be what they are here (ctime): the kernel sets it
by this clock, while that of their content comes from wherever they were packed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import envcheck
from envcheck.core.host import Clock
from envcheck.guest.kernel_files import text


def look(
    package: str = os.path.dirname(os.path.abspath(envcheck.__file__)),
    clock: Callable[[], float] = time.time,
) -> Clock:
    """Return what the clock says, and by how much other times are ahead of it."""
    booted, now = _booted(), clock()
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
                    found.append(os.stat(os.path.join(folder, name)).st_ctime)
                except OSError:  # removed meanwhile
                    continue
    return max(found, default=None)
