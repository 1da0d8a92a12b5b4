"""The NVIDIA kernel module of this machine, whose version is the driver's."""

from __future__ import annotations

import re

_FILE = "/proc/driver/nvidia/version"


def version() -> str | None:
    """Return `580.65.06` and the like; None where there is no such module."""
    try:
        with open(_FILE, encoding="ascii", errors="replace") as handle:
            match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", handle.read(4096))
    except OSError:
        return None
    return match[1] if match is not None else None
