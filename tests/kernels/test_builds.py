"""The guest with the real torch, nvcc and Triton of an environment, its answers against cuobjdump.

The shipped kernels are built once; what is tried with odd ones needs no header of torch, which
take a quarter of a minute to compile.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from envcheck import bundle, catalog
from envcheck.core import codec
from envcheck.core.compiled import Compiled, CudaKernel
from envcheck.core.request import Collected, CompileRequest, Request

pytestmark = pytest.mark.timeout(1200)

Compile = Callable[..., Compiled]

CUDA = """\
kind = "cuda"
purpose = "Something."
sources = ["kernel.cu", "more.cpp"]
[dtypes.fp32]
min_sm = "sm_75"
tolerance = { accumulate = "fp32", source = "a book" }
[[shapes]]
N = 5
"""
TRITON = """\
kind = "triton"
purpose = "Something."
[dtypes.fp32]
min_sm = "sm_75"
tolerance = { accumulate = "fp32", source = "a book" }
[[configs]]
constants = { BLOCK = 16 }
num_warps = 4
num_stages = 2
[[shapes]]
N = 5
"""
TRITON_KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def double(x, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    BODY

def compilations(dtype, config):
    return [{"fn": double, "signature": {"x": "*" + dtype},
             "constexprs": {"BLOCK": config["BLOCK"]}, "divisible": ("x",)}]
"""


@pytest.fixture
def guest(torch_python: str, cuda_home: Path, tmp_path: Path) -> Compile:
    """Return what runs the guest in the environment, for kernels of a folder."""

    def compile_them(root: Path, *names: str, **fields: object) -> Compiled:
        control = tmp_path / f"control-{time.monotonic_ns()}"
        entry = bundle.stage(control / "bundle")
        asked = {
            "target": "sm_120",
            "root": str(root),
            "cache": str(tmp_path / "cache"),
            "kernels": tuple(catalog.load(root / name) for name in names),
        }
        request = Request(compile=CompileRequest(**{**asked, **fields}))
        (control / "request.json").write_text(codec.dumps(request))
        (tmp_path / "tmp").mkdir(exist_ok=True)
        done = subprocess.run(
            [torch_python, "-E", "-S", "-B", str(entry), str(control)],
            capture_output=True,
            check=False,
            env={**os.environ, "CUDA_HOME": str(cuda_home), "TMPDIR": str(tmp_path / "tmp")},
            text=True,
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert not [*(tmp_path / "tmp").iterdir(), *(tmp_path / "cache").glob("scratch-*")]
        document = (control / "inventory.json").read_bytes()
        compiled = codec.loads(Collected, document, name="inventory").compiled
        assert (compiled.outcome.status, compiled.message) == ("ok", "")
        return compiled

    return compile_them


def cuda_kernel(root: Path, name: str, *, source: str, more: str = "") -> None:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in {
        "kernel.toml": CUDA,
        "kernel.py": "",
        "kernel.cu": source,
        "more.cpp": more,
    }.items():
        (folder / file).write_text(text)


def triton_kernel(root: Path, name: str, body: str) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "kernel.toml").write_text(TRITON)
    (folder / "kernel.py").write_text(TRITON_KERNEL.replace("BODY", body))


def listed(path: Path) -> tuple[list[str], list[str]]:
    """Return the SMs of machine code and of PTX that NVIDIA's own tool finds in a library."""
    files = metadata.files("nvidia-cuda-cuobjdump") or []
    tool = next(str(f.locate()) for f in files if f.name == "cuobjdump")
    said = [
        subprocess.run([tool, flag, str(path)], capture_output=True, check=True, text=True).stdout
        for flag in ("--list-elf", "--list-ptx")
    ]
    elf, ptx = (re.findall(r"\.(sm_\w+)\.(?:cubin|ptx)", text) for text in said)
    return elf, ptx


def library(cache: Path, one: CudaKernel) -> Path:
    (found,) = (cache / "cuda").glob(f"{one.kernel}-{one.asked}-*/{Path(one.file.path).name}")
    return found


def codes(one: CudaKernel) -> list[tuple[str, str]]:
    return [(c.kind, c.sm) for box in one.file.containers for c in box.code]


def test_the_shipped_kernels_are_built_for_the_target_alone_and_only_once(guest, tmp_path):
    root, cache = tmp_path / "kernels", tmp_path / "cache"
    catalog.stage([catalog.shipped()], root)
    names = ("fused_elementwise", "mma_matmul")
    first = guest(root, *names).cuda
    assert (first.outcome.status, first.message) == ("ok", "")
    assert [(k.kernel, k.outcome.status, k.message) for k in first.kernels] == [
        (name, "ok", "") for name in names
    ]
    for one in first.kernels:
        assert listed(library(cache, one)) == (["sm_120"], [])
        assert codes(one) == [("sass", "sm_120")]
        assert any(n.startswith("libc10") for n in one.file.needed)
    times = {p: p.stat().st_mtime_ns for p in cache.rglob("*.o")}
    assert len(times) == 4
    catalog.stage([catalog.shipped()], root)  # as another run would
    second = guest(root, *names).cuda
    assert {p: p.stat().st_mtime_ns for p in cache.rglob("*.o")} == times

    def timeless(kernels: tuple[CudaKernel, ...]) -> list[CudaKernel]:
        return [replace(k, outcome=replace(k.outcome, milliseconds=0)) for k in kernels]

    assert timeless(second.kernels) == timeless(first.kernels)
    spent = [sum(k.outcome.milliseconds for k in run.kernels) for run in (first, second)]
    assert spent[1] < spent[0] / 10


@pytest.mark.parametrize(
    ("asked", "elf", "ptx"),
    [
        ("9.0a", ["sm_90a"], []),
        ("12.0+PTX", ["sm_120"], ["sm_120"]),
        ("8.6;12.0", ["sm_86", "sm_120"], []),
    ],
)
def test_the_library_holds_what_was_asked_for(guest, tmp_path, asked, elf, ptx):
    cuda_kernel(tmp_path / "k", "plain", source="__global__ void f(int *p) { *p = 1; }")
    (one,) = guest(tmp_path / "k", "plain", arch_list=asked).cuda.kernels
    assert (one.outcome.status, one.message, one.asked) == ("ok", "", asked)
    (file,) = (tmp_path / "cache").rglob("*.so")
    found = listed(file)
    assert tuple(map(sorted, found)) == (sorted(elf), sorted(ptx))
    assert sorted(codes(one)) == sorted(
        [*(("sass", sm) for sm in found[0]), *(("ptx", sm) for sm in found[1])]
    )


def test_each_kernel_that_cannot_be_built_says_what_its_compiler_said(guest, tmp_path):
    root, good = tmp_path / "k", "__global__ void f(int *p) { *p = 1; }"
    cuda_kernel(root, "misspelt", source=f"{good}\n__global__ void g() {{ gone(); }}")
    cuda_kernel(root, "lacks_header", source=good, more="\n#include <gone/gone.h>\n")
    cuda_kernel(root, "not_linked", source=good, more="void gone(); void f() { gone(); }")
    cuda_kernel(root, "assembled", source='__global__ void f() { asm volatile("gone;"); }')
    cuda_kernel(root, "good", source=good)
    names = ("misspelt", "lacks_header", "not_linked", "assembled", "good")
    found = {k.kernel: k for k in guest(root, *names).cuda.kernels}
    ended = {name: (k.outcome.status, k.file is None) for name, k in found.items()}
    assert ended == dict.fromkeys(names[:-1], ("raised", True)) | {"good": ("ok", False)}
    message = {name: k.message for name, k in found.items()}
    assert message["misspelt"] == 'kernel.cu(2): error: identifier "gone" is undefined'
    assert message["lacks_header"] == (
        "more.cpp:2:10: fatal error: gone/gone.h: No such file or directory"
    )
    assert message["not_linked"] == "envcheck_not_linked.so: undefined symbol: _Z4gonev"
    assert re.match(r"ptxas .*; error : ", message["assembled"]), message["assembled"]
    assert message["good"] == ""


def test_a_build_that_never_ends_is_ended_and_leaves_nothing(guest, tmp_path):
    fifo = tmp_path / "k" / "waits" / "never.h"
    cuda_kernel(tmp_path / "k", "waits", source='#include "never.h"')
    os.mkfifo(fifo)
    (one,) = guest(tmp_path / "k", "waits", build_deadline=5).cuda.kernels
    assert (one.outcome.status, one.message) == ("timed-out", "not done after 5 s")
    fifo.unlink()
    fifo.write_text("__global__ void f(int *p) { *p = 1; }")
    (one,) = guest(tmp_path / "k", "waits").cuda.kernels
    assert one.outcome.ok


def test_triton_kernels_fail_one_by_one(guest, tmp_path):
    root = tmp_path / "k"
    triton_kernel(root, "good", "tl.store(at, tl.load(at) * 2)")
    triton_kernel(root, "misspelt", "tl.lod(at)")
    triton_kernel(
        root, "refused", 'tl.inline_asm_elementwise("gone $0;", "=r", [], tl.int32, False, 1)'
    )
    triton_kernel(root, "aborts", "pass")
    (root / "aborts" / "kernel.py").write_text("import os; os.abort()")
    compiled = guest(root, "good", "misspelt", "refused", "aborts").triton
    assert compiled.outcome.ok
    found = {c.kernel: (c.outcome.status, c.message) for c in compiled.compilations}
    assert found["good"] == ("ok", "")
    assert found["misspelt"][0] == "raised"
    assert "has no attribute 'lod'" in found["misspelt"][1]
    assert found["refused"][0] == "raised"
    assert found["aborts"] == ("crashed", "killed by SIGABRT")


def test_real_packages_are_imported_as_a_job_would(guest, tmp_path):
    found = {
        e.name: e.imported.status for e in guest(tmp_path, imports=("torch", "triton")).extensions
    }
    assert found == {"torch": "ok", "triton": "ok"}
