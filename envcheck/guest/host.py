"""The host around the card: each part is looked at by itself, and none costs another one.

A part of which nothing could be learnt is None, and why stands in `unread`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from envcheck.core.host import Host
from envcheck.core.machine import Asked
from envcheck.guest import bounds, clock, disk, host_memory, nodes, processors, shm_write, system

_T = TypeVar("_T")
_WINDOW = 1.0
"""Seconds over which it is counted what becomes of the processors' time: ticks are 10 ms."""


def look(asked: Asked, seconds: float) -> Host:
    """Return all facts, in about so many seconds, or some more where a disk hangs; never raises.

    No other thread may start processes meanwhile, see `trial`.
    """
    unread: dict[str, str] = {}
    memory = _part("memory", host_memory.look, unread)
    shared = _part(
        "shared", lambda: shm_write.look(asked, memory, seconds=seconds * 0.3), unread
    )  # fmt: skip
    found = _part("disk", lambda: disk.look(asked.folder, seconds=seconds * 0.5), unread)
    if found is not None and found[1]:
        unread["disk"] = found[1]
    told = _part("system", system.look, unread)
    work = min(_WINDOW, seconds / 5)
    used = _part("processors", lambda: processors.look(seconds=work), unread)
    inside = told is not None and told.container is not None
    return Host(
        processors=used,
        memory=memory,
        shared=shared,
        disk=found[0] if found is not None else None,
        bounds=_part("bounds", bounds.look, unread),
        clock=_part("clock", clock.look, unread),
        system=told,
        unlinked=None if inside else _part("unlinked", nodes.unlinked, unread),
        unread=unread,
    )


def _part(name: str, look: Callable[[], _T], unread: dict[str, str]) -> _T | None:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - whatever it is, it costs this part alone
        unread[name] = f"{type(error).__name__}: {error}"
        return None
