"""Write to /dev/shm what a job will need there: its size alone does not tell what it takes.

Pages of a file in memory are taken when they are touched. What exceeds the file system is then a
bus error for who has mapped it, and what exceeds the control group's memory is killed; so it is
allocated first (`posix_fallocate` answers with an error), in a child, and never more than half of
the memory that is left. What takes too long is left out.
"""

from __future__ import annotations

import os
import tempfile
import time

from envcheck.core.host import HostMemory, SharedWrite
from envcheck.core.machine import Asked
from envcheck.core.shared_memory import for_workers
from envcheck.guest import cache_folders, filesystems, trial

_STEP = 16 << 20
_PATIENCE = 5.0
"""Seconds more for a child that would have ended by itself: on a busy host it is late at times."""


def look(
    asked: Asked, memory: HostMemory | None, *, seconds: float, path: str = "/dev/shm"  # noqa: S108
) -> SharedWrite:  # fmt: skip
    """Write what was asked for, or what the workers need; never raises."""
    folder = cache_folders.shared_memory(path)
    wanted = for_workers(asked.workers) if asked.shm is None else asked.shm
    room = memory.room if memory is not None else None
    # Without a number for the memory nothing large is dared.
    tried = min(wanted, room // 2 if room is not None else _STEP)
    written, refused = 0, None
    if folder.exists:
        ended = trial.run(lambda: write(path, tried, seconds=seconds), deadline=seconds + _PATIENCE)
        told = ended.value if isinstance(ended.value, dict) else {}
        written = told.get("written", 0)
        refused = told.get("refused") if told else ended.outcome.signal or ended.outcome.status
    return SharedWrite(
        folder=folder,
        filesystem=filesystems.kind(path) if folder.exists else None,
        free=filesystems.free(path),
        wanted=wanted,
        tried=tried,
        written=written,
        refused=refused,
    )


def write(folder: str, size: int, *, seconds: float) -> dict[str, int | str | None]:
    """Write so many bytes to a file without a name; returns how many and what stopped it."""
    until, written, page = time.monotonic() + seconds, 0, bytes(_STEP)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as handle:
            while written < size and time.monotonic() < until:
                step = min(_STEP, size - written)
                os.posix_fallocate(handle.fileno(), written, step)
                written += os.pwrite(handle.fileno(), page[:step], written)
    except OSError as error:
        return {"written": written, "refused": filesystems.refusal(error)}
    return {"written": written, "refused": None}
