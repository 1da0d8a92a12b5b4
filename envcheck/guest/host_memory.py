"""The memory of the host, and how much of it may be taken."""

from __future__ import annotations

from envcheck.core.host import HostMemory
from envcheck.guest import cgroups
from envcheck.guest.kernel_files import named


def look(meminfo: str = "/proc/meminfo", proc: str = cgroups.PROC) -> HostMemory:
    """Return what the kernel tells of it."""
    told = named(meminfo)
    limit = cgroups.memory(proc)
    return HostMemory(
        total=_size(told, "MemTotal"),
        available=_size(told, "MemAvailable"),
        limit=limit[0] if limit is not None else None,
        used=limit[1] if limit is not None else None,
        swap=_size(told, "SwapTotal"),
        swap_free=_size(told, "SwapFree"),
    )


def _size(told: dict[str, str], name: str) -> int | None:
    amount, _, unit = told.get(name, "").partition(" ")
    return int(amount) << 10 if amount.isdecimal() and unit == "kB" else None
