"""Drivers' libraries that NVIDIA's packages for forward compatibility bring into an image."""

from __future__ import annotations

import glob
import os
import re

_FOLDERS = ("/usr/local/cuda*/compat", "/usr/local/cuda*/compat/lib.real")
_LIBRARY = re.compile(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)")


def versions(root: str = "/") -> tuple[str, ...]:
    """Return the versions in the names of the libcuda files that cuda-compat installs."""
    found = set()
    for folder in _FOLDERS:
        for path in glob.glob(root.rstrip("/") + folder + "/libcuda.so.*"):
            match = _LIBRARY.fullmatch(os.path.basename(path))
            if match is not None:
                found.add(match[1])
    return tuple(sorted(found))
