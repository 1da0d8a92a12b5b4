"""Real published wheels put together wrongly, found without being told: `pytest -m wheels`.

Each environment is a venv with real wheels, installed by pip without their requirements. Where torch
is needed, its metadata alone stands in: gigabytes of libraries change nothing of what is
judged here. What is expected was seen by importing: the module fails with the quoted error, with
Python 3.11 and torch 2.14.1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data.dist_info import install
from running import envcheck

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(1800)]

Findings = dict[tuple[str, str], tuple[str, str]]
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes a venv with wheels, installed one after the other."""

    def _make(*wanted: str, torch: tuple[str, ...] | None = None) -> Path:
        venv = tmp_path / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        for one in wanted:
            _pip(venv, "install", "--no-deps", "--only-binary=:all:", one)
        if torch is not None:
            version = b"__version__ = '2.14.1'\ncuda: Optional[str] = '13.0'\n"
            files = {"torch/__init__.py": b"", "torch/version.py": version}
            install(_site(venv), "torch", "2.14.1", requires=torch, files=files)
        return venv

    return _make


def _site(venv: Path) -> Path:
    (site,) = venv.glob("lib/python3*/site-packages")
    return site


def _pip(venv: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]
    return subprocess.run(
        [*command, *arguments, "--disable-pip-version-check"],
        capture_output=True, text=True, check=arguments[0] != "check",
    )  # fmt: skip


def findings(venv: Path) -> Findings:
    """Return status and message by check and subject."""
    return {
        (f["check"], f["subject"]): (f["status"], f["message"]) for f in _document(venv)["findings"]
    }


@pytest.mark.parametrize(
    ("name", "version", "pin"),
    [
        # RuntimeError: operator torchvision::nms does not exist
        ("torchvision", "0.19.1", "2.4.1"),
        # OSError: Could not load this library: libtorchaudio.so
        ("torchaudio", "2.8.0", "2.8.0"),
        ("xformers", "0.0.28.post1", "2.4.1"),
    ],
)
def test_a_member_of_another_release(make: Make, name: str, version: str, pin: str) -> None:
    found = findings(make(f"{name}=={version}", torch=()))
    assert found["torch-family-matches", f"{name} {version}"] == (
        "fail",
        f"made for torch=={pin}, but torch 2.14.1 is installed",
    )


def test_torchao_of_another_release(make: Make) -> None:
    found = findings(make("torchao==0.13.0", torch=()))
    assert found["torch-family-matches", "torchao 0.13.0"] == (
        "warn",
        "its C++ kernels are made for torch 2.8.0, this is 2.14.1",
    )


def test_a_jax_whose_plugin_is_half_there(make: Make) -> None:
    """Its log says `AssertionError` or nothing, and JAX has `[CpuDevice(id=0)]`."""
    found = findings(make("jax==0.10.2", "jaxlib==0.10.2", "jax-cuda13-plugin==0.10.2"))
    status, message = found["jax-has-its-cuda-plugin", "jax-cuda13-plugin 0.10.2"]
    assert (status, message.partition(":")[0]) == ("fail", "jax-cuda13-pjrt is not installed")


@pytest.mark.parametrize(
    ("name", "version", "path"),
    [
        # ImportError: numpy.core.multiarray failed to import
        ("opencv-python-headless", "4.9.0.80", "cv2/cv2.abi3.so"),
        # ImportError, after `AttributeError: _ARRAY_API not found`
        ("onnxruntime", "1.17.1", "onnxruntime/capi/onnxruntime_pybind11_state.cpython-"),
    ],
)
def test_extensions_made_for_numpy_1(make: Make, name: str, version: str, path: str) -> None:
    found = findings(make("numpy>=2.1", f"{name}=={version}"))
    status, message = found["numpy-abi-matches", f"{name} {version}"]
    assert status == "fail"
    assert message.startswith(path)


@pytest.mark.parametrize(
    ("wanted", "subject", "other"),
    [
        # ImportError: C extension: None not built
        (("pandas==3.1.1", "numpy==1.26.0", "python-dateutil==2.9.0"), "pandas 3.1.1", "numpy"),
        # ImportError: Numba needs NumPy 2.2 or less. Got NumPy 2.4.
        (("numba==0.61.2", "llvmlite==0.44.0", "numpy==2.4.0"), "numba 0.61.2", "numpy"),
        # ImportError, after `Please update llvmlite.`
        (("numba==0.68.1", "llvmlite==0.45.0", "numpy==2.4.0"), "numba 0.68.1", "llvmlite"),
    ],
)
def test_a_release_that_the_import_refuses(
    make: Make, wanted: tuple[str, ...], subject: str, other: str
) -> None:
    venv = make(*wanted)
    status, message = findings(venv)["requirements-are-installed", subject]
    assert (status, f"requires {other}" in message) == ("fail", True)
    module = subject.partition(" ")[0]
    code = [str(venv / "bin" / "python"), "-c", f"import {module}"]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert "ImportError" in done.stderr


def test_a_newer_llvmlite_than_numba_was_tried_with_may_work(make: Make) -> None:
    venv = make("numba==0.62.1", "llvmlite==0.46.0", "numpy==2.3.5")
    status, _ = findings(venv)["requirements-are-installed", "numba 0.62.1"]
    code = "import numba; assert numba.njit(lambda x: x + 1)(2) == 3"
    subprocess.run([str(venv / "bin" / "python"), "-c", code], check=True)
    assert status == "warn"


def test_their_successors_take_both(make: Make) -> None:
    found = findings(make("numpy>=2.1", "opencv-python-headless==4.12.0.88"))
    assert {
        status for (check, _), (status, _) in found.items() if check == "numpy-abi-matches"
    } == {"pass"}


def test_a_bitsandbytes_from_before_this_cuda(make: Make) -> None:
    """It has a library for each CUDA up to 12.2, and looks for one that is called cuda130."""
    found = findings(make("bitsandbytes==0.41.3", torch=()))
    status, message = found["device-code-runs-on-target", "bitsandbytes"]
    assert status == "fail"
    assert message.endswith("bitsandbytes loads none with CUDA 13.0")


def test_onnxruntime_over_onnxruntime_gpu(make: Make) -> None:
    """microsoft/onnxruntime#23833: get_available_providers() names no CUDA."""
    found = findings(make("onnxruntime-gpu==1.23.0", "onnxruntime==1.23.0"))
    status, message = found["exclusive-packages-are-apart", "onnxruntime"]
    assert status == "fail"
    assert message.endswith("those of onnxruntime-gpu 1.23.0 are lost")


def test_nccl_for_cuda_12_over_that_for_cuda_13(make: Make) -> None:
    """pytorch/pytorch#186591: the names are two, the path is one."""
    torch = ("nvidia-nccl-cu13==2.30.7",)
    venv = make("nvidia-nccl-cu13==2.30.7", "nvidia-nccl-cu12==2.27.7", torch=torch)
    found = findings(venv)
    status, message = found["exclusive-packages-are-apart", "nvidia/nccl"]
    assert status == "fail"
    assert "those of nvidia-nccl-cu13 2.30.7 are lost, which torch needs" in message
    owners = "nvidia-nccl-cu12 2.27.7 and nvidia-nccl-cu13 2.30.7"
    status, message = found["one-distribution-owns-each-file", owners]
    assert status == "fail"
    assert "nvidia/nccl/lib/libnccl.so.2" in message


def test_two_variants_of_opencv(make: Make) -> None:
    found = findings(make("opencv-python==4.12.0.88", "opencv-contrib-python==4.12.0.88"))
    assert found["exclusive-packages-are-apart", "cv2"][0] == "warn"


def test_a_wheel_for_another_python(make: Make, tmp_path: Path) -> None:
    """Copied from an image with Python 3.10: ModuleNotFoundError for its compiled part."""
    venv = make()
    if sys.version_info[:2] == (3, 10):
        pytest.skip("the other Python is this one")
    wheels = tmp_path / "wheels"
    _pip(venv, "download", "--no-deps", "--only-binary=:all:", "--python-version", "3.10",
         "--dest", str(wheels), "regex==2024.11.6")  # fmt: skip
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(_site(venv))
    found = findings(venv)
    status, message = found["wheel-tags-fit-interpreter", "regex 2024.11.6"]
    assert status == "fail"
    assert message.startswith("built for cp310-cp310-")


PACKAGES = {
    *("requirements-are-installed", "torch-family-matches", "one-distribution-owns-each-file"),
    *("exclusive-packages-are-apart", "files-match-record", "wheel-tags-fit-interpreter"),
    *("numpy-abi-matches", "device-selection-is-valid"),
}


def test_healthy_packages_raise_no_alarm(make: Make) -> None:
    venv = make()
    _pip(venv, "install", "--only-binary=:all:", "pandas", "scikit-learn", "onnxruntime",
         "opencv-python-headless", "safetensors", "tokenizers", "matplotlib", "numba")  # fmt: skip
    assert _pip(venv, "check").returncode == 0
    found = findings(venv)
    alarms = [key for key, (status, _) in found.items() if key[0] in PACKAGES and status != "pass"]
    assert {check for check, _ in alarms} <= {"torch-family-matches", "device-selection-is-valid"}
    assert {found[key][0] for key in alarms} <= {"skip"}


def test_a_tag_that_only_wheel_has_is_no_alarm(make: Make) -> None:
    """decord 0.6.0 is py3-none by its name and cp36-cp36m inside, and it runs."""
    found = findings(make("decord==0.6.0"))
    assert found["wheel-tags-fit-interpreter", "packages"][0] == "pass"


def test_pins_agree_with_pip_check(make: Make) -> None:
    names = "torchvision==0.19.1", "onnxruntime==1.17.1", "opencv-python==4.12.0.88", "numpy==2.4.6"
    venv = make(*names, torch=("filelock", "sympy>=1.13"))
    lines = _pip(venv, "check").stdout.splitlines()
    document = _document(venv)
    told = [
        requirement
        for f in document["findings"]
        if f["check"] == "requirements-are-installed"
        for requirement in f["evidence"]["requirements"]
    ]
    family = [f for f in document["findings"] if f["check"] == "torch-family-matches"]
    assert len(lines) == len(told) + len(family) > 3


def _document(venv: Path) -> dict[str, Any]:
    done = envcheck("check", "--python", venv, "--arch", "blackwell", "--format", "json")
    return json.loads(done.stdout)
