"""The real PyTorch environment that several modules look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from published import CACHE, TORCH, wheel


@pytest.fixture(scope="session")
def environment() -> Path:
    """Return a venv with a CUDA build of PyTorch from PyPI and bitsandbytes, made once."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = CACHE / f"torch-{TORCH}-python{version}"
    done = folder / "complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        python = str(folder / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, f"torch=={TORCH}"], check=True)
        # Without numpy, which no check needs.
        subprocess.run([*install, "--no-deps", str(wheel("bitsandbytes", "0.50.2"))], check=True)
        done.touch()
    return folder
