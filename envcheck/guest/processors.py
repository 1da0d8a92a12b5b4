"""Processors: how many there are, how many may be used, and how much of them others take."""

from __future__ import annotations

import os
import time

from envcheck.core.host import Processors
from envcheck.guest import cgroups
from envcheck.guest.kernel_files import named, text

_IDLE, _WAITING, _STEAL = 3, 4, 7
"""Columns of the first line of /proc/stat, see `proc_stat(5)`; the two after them are counted
in the first two already."""
_COUNTED = 8


def look(*, seconds: float, stat: str = "/proc/stat") -> Processors:
    """Return all that is known of them; works for so long, as only wanted time can be stolen."""
    until, before = time.monotonic() + seconds, _ticks(stat)
    while time.monotonic() < until:
        pass
    wanted, steal, busy = shares(before, _ticks(stat))
    return Processors(
        seen=os.cpu_count(),
        allowed=_allowed(),
        quota=cgroups.quota(),
        model=_model(),
        load=_load(),
        wanted=wanted,
        steal=steal,
        busy=busy,
        pressure=pressure(),
    )


def shares(
    before: tuple[int, ...] | None, after: tuple[int, ...] | None
) -> tuple[float | None, float | None, float | None]:
    """Return the wanted time in between, its stolen share, and the used share of all time."""
    if before is None or after is None:
        return None, None, None
    spent = [max(late - early, 0) for early, late in zip(before, after, strict=True)]
    every = sum(spent)
    wanted = every - spent[_IDLE] - spent[_WAITING]
    if not every:
        return None, None, None
    seconds = wanted / os.sysconf("SC_CLK_TCK")
    steal = spent[_STEAL] / wanted if wanted else 0.0
    return round(seconds, 2), round(steal, 4), round((wanted - spent[_STEAL]) / every, 4)


def pressure(folder: str = "/proc/pressure") -> dict[str, float]:
    """Return the `avg60` of what the kernel tells of those that wait; empty where it does not."""
    found = {}
    for name in ("cpu", "memory", "io"):
        first = (text(f"{folder}/{name}") or "").partition("\n")[0]
        for word in first.split():
            key, _, value = word.partition("=")
            if key == "avg60" and value.replace(".", "", 1).isdecimal():
                found[name] = float(value)
    return found


def _ticks(stat: str) -> tuple[int, ...] | None:
    words = (text(stat) or "").partition("\n")[0].split()
    numbers = words[1 : _COUNTED + 1]
    if words[:1] != ["cpu"] or len(numbers) < _COUNTED or not all(map(str.isdecimal, numbers)):
        return None
    return tuple(map(int, numbers))


def _allowed() -> int | None:
    try:
        return len(os.sched_getaffinity(0))
    except OSError:
        return None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _model() -> str | None:
    told = named("/proc/cpuinfo")
    # Where the processor is an Arm there is no name, only numbers.
    return told.get("model name") or told.get("CPU part")
