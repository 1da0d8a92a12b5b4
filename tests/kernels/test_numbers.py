"""Every kernel's numbers, through Triton's interpreter, against float64 at odd sizes.

The interpreter keeps bfloat16 as 16-bit integers: it loads and widens them, but neither adds
nor multiplies them, and cuts instead of rounding when it stores. So kernels that compute in
bfloat16 are left to a card, and others get the error of a cut, twice that of a rounding.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envcheck import catalog

SHAPES = {
    "vector_add": [{"N": 1}, {"N": 5003}],
    "fused_softmax": [{"M": 1, "N": 1}, {"M": 3, "N": 781}, {"M": 2, "N": 9001}],
    "layer_norm": [{"M": 1, "N": 1}, {"M": 5, "N": 781}, {"M": 35, "N": 130}],
    "matmul": [
        {"M": 1, "N": 1, "K": 1},
        {"M": 33, "N": 70, "K": 129},
        {"M": 130, "N": 260, "K": 70},
    ],
    "flash_attention": [{"Z": 1, "T": 1}, {"Z": 2, "T": 67}, {"Z": 1, "T": 130}],
    "cross_entropy": [{"M": 1, "N": 1}, {"M": 3, "N": 1001}, {"M": 2, "N": 9001}],
    "scan": [{"M": 1, "N": 1}, {"M": 2, "N": 1023}, {"M": 1, "N": 2500}],
    "int4_matmul": [{"M": 1, "N": 1, "K": 128}, {"M": 17, "N": 67, "K": 384}],
}
COMPUTE_IN_BF16 = {"vector_add", "matmul", "flash_attention", "int4_matmul"}
KERNELS = [k for k in catalog.load_all([catalog.shipped()]) if k.kind == "triton"]


def cases() -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for kernel in KERNELS:
        for dtype, config in kernel.pairs():
            if dtype == "bf16" and kernel.name in COMPUTE_IN_BF16:
                continue
            index = kernel.configs.index(config)
            for number, shape in enumerate(SHAPES[kernel.name]):
                # Patterns find what random numbers hide: constant rows, exact sums.
                for pattern in ("random", "integers", "ones", "zeros")[: 4 if number == 1 else 1]:
                    sizes = ",".join(f"{name}={size}" for name, size in shape.items())
                    name = f"{kernel.name}-{dtype}-{index}-{sizes}-{pattern}"
                    found[name] = [name, kernel.name, dtype, index, shape, pattern]
    return found


CASES = cases()


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float] | str]:
    missing = [n for n in ("torch", "numpy") if importlib.util.find_spec(n) is None]
    if missing:
        pytest.skip(f"Triton's interpreter needs {' and '.join(missing)}")
    folder = tmp_path_factory.mktemp("interpret")
    (folder / "cases.json").write_text(json.dumps(list(CASES.values())))
    command = [sys.executable, str(Path(__file__).parent / "interpret.py")]
    command += [str(folder / "cases.json"), str(folder / "answers.json")]
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "answers.json").read_text())


def test_every_triton_kernel_has_shapes_here():
    assert set(SHAPES) == {k.name for k in KERNELS}


@pytest.mark.triton
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_within_the_bound_of_its_dtype(answers, name):
    answer = answers[name]
    assert isinstance(answer, dict), answer
    assert answer, "no output was compared"
    limit = 2.0 if "-bf16-" in name else 1.0
    assert {output: worst for output, worst in answer.items() if not worst <= limit} == {}


@pytest.mark.triton
def test_exact_results_are_exact(answers):
    """Sums of small integers, and of ones, have no rounding in them at these sizes."""
    exact = [
        name
        for name in CASES
        if name.startswith(("matmul-", "vector_add-")) and name.endswith(("-ones", "-integers"))
    ]
    assert len(exact) >= 10
    assert {name: answers[name] for name in exact if any(answers[name].values())} == {}
