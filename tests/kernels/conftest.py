"""What the tests of real kernels need: Triton, and for numbers torch beside it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of this folder."""
    config.addinivalue_line("markers", "triton: compiles or interprets with the installed Triton")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a Triton that is not there."""
    if item.get_closest_marker("triton") and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")


@pytest.fixture(scope="session")
def triton_tools() -> Path:
    """Return the folder of the programs that ship inside Triton."""
    spec = importlib.util.find_spec("triton")
    return Path(spec.origin).parent / "backends" / "nvidia" / "bin"


@pytest.fixture(scope="session")
def nvcc() -> str:
    """Return the nvcc of this environment's wheels, or the one of the machine."""
    for folder in sys.path:
        for path in sorted(Path(folder).glob("nvidia/*/bin/nvcc")):
            return str(path)
    found = shutil.which("nvcc")
    if found is None:
        pytest.skip("no nvcc, neither as a wheel nor on the PATH")
    return found
