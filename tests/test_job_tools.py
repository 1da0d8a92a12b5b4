"""From a job's PATH and variables to a verdict, as a user sees it (recipes R21, R25c)."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import OBJECTS, venv, wheel
from running import environment, report

CHECKS = (
    *("jit-tools-are-there", "variables-name-what-exists", "caches-are-writable"),
    "nvcc-fits-torch-and-compiler",
)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment whose kernels are Triton's, without a file of the real packages."""
    folder = tmp_path_factory.mktemp("wheels")
    library = (OBJECTS / "nordc_s80p80.so").read_bytes()
    torch = {
        "torch/version.py": b"__version__ = '2.8.0'\ncuda: str = '12.8'\n",
        "torch/lib/libtorch_cuda.so": library,
    }
    return venv(
        folder / "venv",
        wheel(folder, "torch", "2.8.0", torch),
        wheel(folder, "triton", "3.4.0", {"triton/__init__.py": b""}),
        wheel(folder, "liger-kernel", "0.8.5", {"liger_kernel/__init__.py": b""}),
    )


def findings(training: Path, **variables: str) -> dict[str, dict[str, str]]:
    inherited = {k: v for k, v in environment().items() if k not in ("CC", "CXX", "CUDA_HOME")}
    wanted = [word for check in CHECKS for word in ("--only", check)]
    # The whole environment is given: what this machine has set is none of the test's affair.
    document = report(
        *("check", "--python", training, "--arch", "sm_120", *wanted),
        env={**inherited, **variables},
    )
    return {f["subject"]: f for f in document["findings"] if f["status"] in ("warn", "fail")}


def test_r21_without_a_compiler_a_job_of_triton_fails(training: Path, tmp_path: Path) -> None:
    compiler = findings(training, PATH=str(tmp_path))["C compiler"]
    assert compiler["status"] == "fail"
    assert "liger-kernel 0.8.5" in compiler["message"]
    program = tmp_path / "gcc"
    program.touch(0o755)
    assert "C compiler" not in findings(training, PATH=str(tmp_path))


def test_r25c_variables_that_name_nothing_are_told(training: Path, tmp_path: Path) -> None:
    found = findings(
        training,
        CUDA_HOME=str(tmp_path / "cuda"),
        TORCH_CUDA_ARCH_LIST="8.0,9.0",
        TRITON_CACHE_DIR=str(Path(__file__)),
    )
    assert found["CUDA_HOME"]["status"] == "warn"
    assert found["TORCH_CUDA_ARCH_LIST"]["status"] == "warn"
    cache = found[str(Path(__file__))]
    assert (cache["status"], "not a folder" in cache["message"]) == ("fail", True)
