"""A Python of its own for each use of the card."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import envcheck

_ROOT = Path(envcheck.__file__).parent.parent
_START = """\
import runpy, sys
sys.path[:0] = {path!r}
sys.argv[0] = "envcheck"
runpy.run_module("envcheck", run_name="__main__", alter_sys=True)
"""


def envcheck_command(packages: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `envcheck` in a Python of its own, with packages beside those that it has.

    It is not found by PYTHONPATH: what lies there belongs to the environment that is checked.
    """
    path = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return _run("-c", _START.format(path=path), *words, PYTHONPATH=str(packages))


def python(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a Python of its own: one in which other tests started CUDA must not fork any more."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return _run(*words, PYTHONPATH=path)


def _run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
