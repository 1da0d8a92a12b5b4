"""A Python of its own for each use of the card."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import envcheck

_ROOT = Path(envcheck.__file__).parent.parent


def python(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a Python of its own: one in which other tests started CUDA must not fork any more."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
