"""What the tests of real kernels need: Triton, and for numbers torch beside it.

Tests that build extensions run the guest in an environment with torch and nvcc: that of
this interpreter, or of the one that ENVCHECK_TEST_PYTHON names.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
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


@pytest.fixture(scope="session")
def torch_python() -> str:
    """Return an interpreter whose environment holds a torch for CUDA."""
    python = os.environ.get("ENVCHECK_TEST_PYTHON") or sys.executable
    look = "import torch; raise SystemExit(torch.version.cuda is None)"
    if subprocess.run([python, "-c", look], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no torch for CUDA; ENVCHECK_TEST_PYTHON may name another")
    return python


@pytest.fixture(scope="session")
def cuda_home(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a toolkit: the one that CUDA_HOME names, or made of the environment's wheels."""
    if not all(map(shutil.which, ("c++", "ninja"))):
        pytest.skip("no c++ or no ninja on the PATH")
    if named := os.environ.get("CUDA_HOME"):
        return Path(named)
    look = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([torch_python, "-c", look], capture_output=True, check=True, text=True)
    found = sorted(Path(site.stdout.strip()).glob("nvidia/cu[0-9]*/bin/nvcc"))
    if not found:
        pytest.skip(f"no nvcc: neither in CUDA_HOME nor as a wheel of {torch_python}")
    tree, home = found[-1].parents[1], tmp_path_factory.mktemp("cuda")
    for name in ("bin", "include", "nvvm"):
        (home / name).symlink_to(tree / name)
    (home / "lib64").mkdir()
    for library in (tree / "lib").iterdir():
        # A wheel has no plain names, which are what a linker asks for.
        (home / "lib64" / library.name).symlink_to(library)
        plain = home / "lib64" / f"{library.name.partition('.so')[0]}.so"
        if ".so." in library.name and not plain.is_symlink():
            plain.symlink_to(library)
    return home
