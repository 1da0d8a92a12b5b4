"""Published wheels, downloaded once into ENVCHECK_WHEELS_CACHE or ~/.cache/envcheck-wheels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("ENVCHECK_WHEELS_CACHE", "~/.cache/envcheck-wheels")).expanduser()
TORCH = "2.14.1"
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014", "manylinux1")  # fmt: skip


def wheel(name: str, version: str) -> Path:
    """Return a published wheel for Python 3.11 on x86_64, downloaded unless it is there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    pattern = f"{name.replace('-', '_')}-{version}-*x86_64.whl"
    found = sorted(CACHE.glob(pattern))
    if not found:
        platforms = [word for p in PLATFORMS for word in ("--platform", f"{p}_x86_64")]
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"),
                *(*platforms, "--dest", str(CACHE), f"{name}=={version}"),
            ],
            check=True,
        )
        found = sorted(CACHE.glob(pattern))
    (path,) = found
    return path
