"""Environments without a fault: nothing fails in them, and each warning has its reason here.

The packages are popular ones that use the card or come with what does, as pip resolved them for the
PyTorch that is there: `controls.txt` has the releases, so that a new one changes no answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import envcheck

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(1800)]

PACKAGES = [
    "accelerate",
    "bitsandbytes",
    "cupy-cuda13x",
    "datasets",
    "diffusers",
    "einops",
    "faiss-cpu",
    "jax",
    "kornia",
    "lightning",
    "nvidia-ml-py",
    "numba",
    "onnxruntime-gpu",
    "open-clip-torch",
    "opencv-python-headless",
    "optimum",
    "pandas",
    "peft",
    "safetensors",
    "scikit-learn",
    "sentence-transformers",
    "spacy",
    "tensorboard",
    "timm",
    "tokenizers",
    "torchao",
    "torchmetrics",
    "transformers",
    "trl",
    "xgboost",
]
REQUIRED_BY_TORCH = [
    "filelock",
    "fsspec",
    "jinja2",
    "networkx",
    "setuptools",
    "sympy",
    "typing-extensions",
]
WARNED = {
    # It holds PTX alone, which the driver compiles.
    ("distribution-runs-on-target", "nvidia-cufile"),
    ("distribution-runs-on-target", "torchao"),
    # A library of torchao's for the H200 alone, beside those for all.
    ("device-code-runs-on-target", "torchao/_C_cutlass_90a.abi3.so"),
    # No plugin was asked for: this JAX is for the CPU, and that is said.
    ("jax-has-its-cuda-plugin", "jaxlib"),
    # xgboost brings the NCCL for CUDA 12, whose folder is that of PyTorch's for CUDA 13.
    ("exclusive-packages-are-apart", "nvidia/nccl"),
}


def venv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def site(folder: Path) -> Path:
    (found,) = folder.glob("lib/python3*/site-packages")
    return found


def install(folder: Path, *wanted: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    options = ("--quiet", "--disable-pip-version-check", "--only-binary=:all:")
    options = (*options, "--constraint", str(Path(__file__).with_name("controls.txt")))
    subprocess.run([*pip, "install", *options, *wanted], check=True)


def bad(folder: Path) -> set[tuple[str, str, str]]:
    """Return status, check and subject, without its version, of what is no pass and no skip."""
    done = envcheck("check", "--python", folder, "--arch", "blackwell", "--format", "json")
    found = json.loads(done.stdout)["findings"]
    return {
        (f["status"], f["check"], f["subject"].partition(" ")[0])
        for f in found
        if f["status"] not in ("pass", "skip")
    }


def test_thirty_packages_over_one_torch(environment: Path, tmp_path: Path) -> None:
    assert len(PACKAGES) == 30
    overlay = venv(tmp_path / "venv")
    (site(overlay) / "base.pth").write_text(f"{site(environment)}\n")
    install(overlay, *PACKAGES)
    assert bad(overlay) - {("warn", *one) for one in WARNED} == set()


def test_a_pytorch_for_the_processor_is_nothing_but_that(tmp_path: Path) -> None:
    made = venv(tmp_path / "venv")
    index = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
    install(made, "--no-deps", *index, "torch==2.13.0+cpu")
    install(made, *REQUIRED_BY_TORCH)
    subprocess.run([str(made / "bin" / "python"), "-c", "import torch"], check=True)
    assert bad(made) == {("fail", "torch-has-code-for-target", "torch")}


def test_without_any_code_for_a_card_nothing_fails_and_nothing_is_claimed(tmp_path: Path) -> None:
    made = venv(tmp_path / "venv")
    install(made, "numpy", "pandas", "pillow", "scikit-learn")
    assert bad(made) == set()
    done = envcheck("check", "--python", made, "--arch", "blackwell", "-q")
    assert (done.returncode, "no device code was found to judge" in done.stdout) == (11, True)
