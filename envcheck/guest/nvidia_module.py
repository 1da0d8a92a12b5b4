"""The NVIDIA kernel module of this machine, whose version is the driver's."""

from __future__ import annotations

import contextlib
import re

_FILES = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
# The one holds nothing else; in the other a compiler's version follows on a line of its own.
_VERSION = re.compile(r"\A(?:NVRM version:.*?\s)?(\d{3,}\.\d+(?:\.\d+)*)\s")


def version() -> str | None:
    """Return `580.65.06` and the like; None where there is no such module."""
    for file in _FILES:
        with (
            contextlib.suppress(OSError),
            open(file, encoding="ascii", errors="replace") as handle,
        ):
            match = _VERSION.match(handle.read(4096))
            if match is not None:
                return match[1]
    return None


def flavour() -> str | None:
    """Return `open` or `proprietary`, None where no file tells."""
    with contextlib.suppress(OSError), open(_FILES[1], encoding="utf-8", errors="replace") as file:
        first = file.readline()
        if "Kernel Module" in first:
            return "open" if "Open Kernel Module" in first else "proprietary"
    return None
