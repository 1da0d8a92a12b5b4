"""The CUDA C++ kernels: what nvcc makes of them for each card, and the formulas beside them."""

from __future__ import annotations

import importlib.util
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from envcheck import catalog
from envcheck.guest import cubin, elf, kernels
from envcheck.guest.resources import resources_of

KERNELS = {k.name: k for k in catalog.load_all([catalog.shipped()]) if k.kind == "cuda"}
FUNCTIONS = {"fused_elementwise": 6, "mma_matmul": 4}  # types times wide and narrow access
# As torch.utils.cpp_extension calls nvcc.
FLAGS = (
    *("-std=c++17", "--expt-relaxed-constexpr", "-Werror", "all-warnings"),
    *("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"),
    *("-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__"),
)


def compiled(nvcc: str, name: str, target: str, folder: Path) -> subprocess.CompletedProcess[str]:
    source = catalog.shipped() / name / "kernel.cu"
    command = [nvcc, "-cubin", f"-arch={target}", *FLAGS, str(source), "-o"]
    return subprocess.run(
        [*command, str(folder / "kernel.cubin")], check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_120"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_compiles_without_a_warning_or_a_spill(nvcc, tmp_path, name, target):
    done = compiled(nvcc, name, target, tmp_path)
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "kernel.cubin").read_bytes()
    parsed = elf.read(data)
    assert cubin.code_of_cubin(data, parsed).sm == target
    names = cubin.cubin_kernels(data, parsed)
    assert len(names) == FUNCTIONS[name]
    for kernel in names:
        taken = resources_of(data, parsed, kernel)
        assert (taken.stack_bytes, taken.static_shared) == (0, 0)
        assert taken.registers * 256 <= 65536  # a block of 256 threads finds its registers


def test_the_matmul_is_on_tensor_cores_with_copies_ahead(nvcc, tmp_path):
    """Seen in the machine code: HMMA multiplies, LDGSTS is cp.async, LDSM is ldmatrix."""
    spec = importlib.util.find_spec("triton")
    bundled = Path(spec.origin).parent / "backends/nvidia/bin/nvdisasm" if spec else Path("none")
    tool = str(bundled) if bundled.exists() else shutil.which("nvdisasm")
    if tool is None:
        pytest.skip("no nvdisasm")
    assert compiled(nvcc, "mma_matmul", "sm_89", tmp_path).returncode == 0
    command = [tool, "-c", str(tmp_path / "kernel.cubin")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    functions = {part.splitlines()[0]: part for part in text.split(".text.")[1:] if "EXIT" in part}
    assert len(functions) == 4
    for title, body in functions.items():
        # 2 halves of a depth of 32, 4 x 4 products of 16 x 8 for each warp.
        assert len(re.findall(r"\bHMMA\.16816\.F32", body)) == 32
        assert len(re.findall(r"\bLDSM\.16\.M88\.4", body)) == 2 * (4 + 2)
        aligned = "Lb1E" in title
        assert (len(re.findall(r"\bLDGSTS", body)) > 0) == aligned


def test_the_least_sm_of_the_matmul_is_the_least_that_assembles(nvcc, tmp_path):
    done = compiled(nvcc, "mma_matmul", "sm_75", tmp_path)
    if "Unsupported gpu architecture" in done.stderr:
        pytest.skip("this nvcc does not know sm_75")
    assert done.returncode != 0
    assert "sm_80 or higher" in done.stderr
    assert {d.min_sm for d in KERNELS["mma_matmul"].dtypes.values()} == {"sm_80"}


@pytest.mark.parametrize("name", KERNELS)
def test_the_binding_fits_the_installed_torch(nvcc, name):
    spec = importlib.util.find_spec("torch")
    compiler = shutil.which("g++")
    include = Path(nvcc).resolve().parents[1] / "include"
    if spec is None or compiler is None or not (include / "cuda_runtime.h").exists():
        pytest.skip("needs torch, g++ and the headers of the CUDA runtime")
    headers = Path(spec.origin).parent / "include"
    flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    includes = ["-isystem", str(headers), "-isystem", str(include)]
    source = catalog.shipped() / name / "bind.cpp"
    done = subprocess.run(
        [compiler, *flags, *includes, str(source)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_elementwise_formula_is_gelu_as_torch_has_it(dtype):
    torch = pytest.importorskip("torch")
    from envcheck.guest.operands import Operands, difference

    kernel, module = KERNELS["fused_elementwise"], load("fused_elementwise")
    for pattern in ("random", "integers", "zeros"):
        draw = Operands(dtype, seed=3, pattern=pattern, device="cpu")
        operands = module.inputs({"M": 65, "N": 129}, {}, draw)
        x, bias, rest = (operands[n].float() for n in ("x", "bias", "residual"))
        y = (torch.nn.functional.gelu(x + bias) * module.SCALE + rest).to(operands["x"].dtype)
        expected = module.reference(operands, {})["y"]
        rule = kernel.dtypes[dtype].tolerance
        assert difference(y, expected, rule).worst <= 1
        tanh = torch.nn.functional.gelu(x + bias, approximate="tanh") * module.SCALE + rest
        wrong = difference(tanh.to(y.dtype), expected, kernel.dtypes["fp32"].tolerance)
        assert pattern == "zeros" or dtype != "fp32" or wrong.worst > 1


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_matmul_bound_holds_for_torch_and_not_for_a_lost_tail(dtype):
    torch = pytest.importorskip("torch")
    from envcheck.guest.operands import Operands, difference

    kernel, module = KERNELS["mma_matmul"], load("mma_matmul")
    draw = Operands(dtype, seed=3, pattern="random", device="cpu")
    operands = module.inputs({"M": 65, "N": 33, "K": 1111}, {}, draw)
    a, w = operands["a"].float(), operands["w"].float()
    expected = module.reference(operands, {})["c"]
    rule = kernel.dtypes[dtype].tolerance
    kind = operands["a"].dtype
    assert difference((a @ w.T).to(kind), expected, rule).worst <= 1
    tail = 1111 % 8
    short = (a[:, :-tail] @ w[:, :-tail].T).to(kind)
    assert difference(short, expected, rule).worst > 10
    assert difference(torch.zeros_like(short), expected, rule).worst > 10
    assert difference(torch.full_like(short, math.nan), expected, rule).worst == math.inf


def load(name: str):
    return kernels.load(name, str(catalog.shipped()))
