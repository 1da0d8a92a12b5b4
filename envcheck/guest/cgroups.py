"""The control groups that this process is in, and the smallest limit among them.

A limit of any group on the way up holds: that of the process's own group may say `max`. Only
groups below the mount can be seen, so a limit further up stays unknown. Source of the files:
`cgroups(7)`, `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/` of the kernel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from envcheck.guest.kernel_files import number, text

PROC = "/proc/self"
_NO_LIMIT = 1 << 60
"""What version 1 says for none is 2**63 less a page; no machine has as much memory."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The folders of one controller, from the process's own group upwards."""

    version: int
    folders: tuple[str, ...]


def find(controller: str, proc: str = PROC) -> Groups | None:
    """Return the groups of `memory`, `cpu` or `pids`; None where none are to be seen."""
    own = _own(text(f"{proc}/cgroup") or "")
    version = 1 if controller in own else 2
    path = own.get(controller if version == 1 else "")
    mount = _mount(text(f"{proc}/mountinfo") or "", controller if version == 1 else None)
    if path is None or mount is None:
        return None
    root, point = mount
    # In a container whose mount begins at its own group the path is still the host's.
    inside = os.path.relpath(path, root) if _within(path, root) else "."
    folder = os.path.normpath(os.path.join(point, inside))
    folders = []
    while _within(folder, point):
        if os.path.isdir(folder):
            folders.append(folder)
        if folder == point:
            break
        folder = os.path.dirname(folder)
    return Groups(version, tuple(folders)) if folders else None


def memory(proc: str = PROC) -> tuple[int, int | None] | None:
    """Return the smallest limit in bytes, and what is used of it; None for no limit."""
    groups = find("memory", proc)
    if groups is None:
        return None
    first = groups.version == 1
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else (
        "memory.max", "memory.current"
    )  # fmt: skip
    found = _least(groups, *names)
    if found is None:
        return None
    limit, used, folder = found
    # As `docker stats` counts: what lies in the cache of files is given up when it is needed.
    word = "total_inactive_file" if first else "inactive_file"
    cached = _word(f"{folder}/memory.stat", word)
    return limit, None if used is None else max(used - cached, 0)


def tasks(proc: str = PROC) -> tuple[int, int | None] | None:
    """Return how many processes and threads there may be, and are; None for no limit."""
    groups = find("pids", proc)
    found = None if groups is None else _least(groups, "pids.max", "pids.current")
    return None if found is None else found[:2]


def quota(proc: str = PROC) -> float | None:
    """Return how many processors' time the groups allow; None for no limit."""
    groups = find("cpu", proc)
    shares = [] if groups is None else [_share(groups.version, each) for each in groups.folders]
    return min((share for share in shares if share is not None), default=None)


def _share(version: int, folder: str) -> float | None:
    if version == 1:
        time, period = (number(f"{folder}/cpu.cfs_{n}_us") for n in ("quota", "period"))
    else:
        words = (text(f"{folder}/cpu.max") or "").split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            return None
        time, period = map(int, words)
    return time / period if time and period and time > 0 and period > 0 else None


def _word(file: str, name: str) -> int:
    for line in (text(file) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _least(groups: Groups, limit: str, used: str) -> tuple[int, int | None, str] | None:
    found = [(number(f"{each}/{limit}"), each) for each in groups.folders]
    bounded = [(n, each) for n, each in found if n is not None and 0 <= n < _NO_LIMIT]
    if not bounded:
        return None
    least, folder = min(bounded)
    return least, number(f"{folder}/{used}"), folder


def _own(lines: str) -> dict[str, str]:
    """Return the path of each controller of version 1; that of version 2 has the name ''."""
    paths: dict[str, str] = {}
    for line in lines.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        paths |= dict.fromkeys(names.split(","), path)
    return paths


def _mount(lines: str, controller: str | None) -> tuple[str, str] | None:
    """Return which group a mount begins at and where it lies; None is for version 2."""
    for line in lines.splitlines():
        before, _, after = line.partition(" - ")
        words, kind = before.split(), after.split()
        if len(words) < 5 or len(kind) < 3:
            continue
        if kind[0] == ("cgroup2" if controller is None else "cgroup") and (
            controller is None or controller in kind[2].split(",")
        ):
            return words[3], words[4]
    return None


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
