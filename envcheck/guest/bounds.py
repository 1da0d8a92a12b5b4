"""Limits that the kernel sets this process and those that it starts."""

from __future__ import annotations

import os
import resource

from envcheck.core.host import Bounds
from envcheck.guest import cgroups


def look(proc: str = cgroups.PROC) -> Bounds:
    """Return the limits; nothing here can fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tasks = cgroups.tasks(proc)
    return Bounds(
        files=soft,
        files_hard=hard,
        locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        processes=None if os.geteuid() == 0 else resource.getrlimit(resource.RLIMIT_NPROC)[0],
        tasks=tasks[0] if tasks is not None else None,
        tasks_now=tasks[1] if tasks is not None else None,
        infiniband=os.path.isdir("/dev/infiniband"),
    )
