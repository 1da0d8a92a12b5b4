"""What becomes of CUDA C++ kernels under a toolchain that refuses, aborts, hangs or is absent.

torch and nvcc are stand-ins here, so that these tests run everywhere; tests/kernels builds with
the real ones.
"""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from inventories import DATA

from envcheck import catalog
from envcheck.core import codec
from envcheck.core.compiled import CudaKernels
from envcheck.core.request import CompileRequest
from envcheck.guest import cuda_kernels

# Built by nvcc for sm_80 alone, as its name says.
LIBRARY = DATA / "truth" / "objects" / "nordc_s80.so"

TORCH = """
import os, types
__version__ = "2.99.0+cu130"
version = types.SimpleNamespace(cuda=os.environ.get("FAKE_TORCH_CUDA", "13.0") or None)
"""
BUILDER = """
import os, shutil, sys, tempfile, time
CUDA_HOME = os.environ.get("CUDA_HOME") or None

FAILED = '''Error building extension 'envcheck_refused': [1/3] /c/bin/nvcc -MD -c k.cu
FAILED: [code=2] kernel.cuda.o
/c/bin/nvcc -MD -DTORCH_EXTENSION_NAME=error: -c /somewhere/else/kernel.cu -o kernel.cuda.o
/somewhere/else/kernel.cu(9): error: identifier "lod" is undefined
      lod(y);
      ^

/somewhere/else/kernel.cu(12): error: expected a ";"

/somewhere/else/kernel.cu(7): warning #177-D: variable "n" was declared but never referenced

2 errors detected in the compilation of "/somewhere/else/kernel.cu".
ninja: build stopped: subcommand failed.
'''

def load(name, sources, build_directory, is_python_module):
    assert os.path.isdir(build_directory) and not is_python_module
    assert all(os.path.isfile(s) for s in sources), sources
    assert not os.path.exists(os.path.join(build_directory, "lock")), "waits for ever"
    open(os.path.join(build_directory, "lock"), "w").close()
    with open(os.path.join(build_directory, "told"), "a") as handle:
        print(os.environ["TORCH_CUDA_ARCH_LIST"], os.environ["MAX_JOBS"], file=handle)
    what = name.removeprefix("envcheck_")
    if what == "aborts":
        os.abort()
    if what == "hangs":
        tempfile.NamedTemporaryFile(delete=False, suffix=".ptx")
        time.sleep(600)
    if what == "killed":
        os.killpg(0, 9)
    if what == "leaves":
        sys.exit(3)
    if what == "refused":
        raise RuntimeError(FAILED)
    if what == "linked":
        raise RuntimeError("Error building extension 'envcheck_linked': [2/2] c++ -shared\\n"
            "FAILED: [code=1] x.so\\nc++ -shared -lcudart\\n"
            "/usr/bin/ld: cannot find -lcudart: No such file or directory\\n"
            "collect2: error: ld returned 1 exit status\\nninja: build stopped: failed.\\n")
    if what == "unloaded":
        why = OSError(f"{build_directory}/{name}.so: undefined symbol: _Z4gonev")
        raise OSError(f"Could not load this library: {name}") from why
    if what == "mismatched":
        raise RuntimeError("\\nThe detected CUDA version (12.4) mismatches the version that was used "
            "to compile\\nPyTorch (13.0). Please make sure to use the same CUDA versions.\\n")
    shutil.copy(LIBRARY, os.path.join(build_directory, name + ".so"))
"""
DESCRIPTION = """\
kind = "cuda"
purpose = "Something."
sources = ["kernel.cu"]
[dtypes.fp32]
min_sm = "sm_75"
tolerance = { accumulate = "fp32", source = "a book" }
[dtypes.bf16]
min_sm = "sm_80"
tolerance = { accumulate = "fp32", source = "a book" }
[[shapes]]
N = 5
"""


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    path.chmod(mode)


@pytest.fixture(autouse=True)
def toolchain(tmp_path, monkeypatch) -> Path:
    """Put stand-ins for torch, nvcc, a compiler and ninja in place; returns CUDA_HOME."""
    site, home = tmp_path / "site", tmp_path / "cuda"
    write(site / "torch" / "__init__.py", TORCH)
    write(site / "torch" / "utils" / "__init__.py", "")
    source = BUILDER.replace("LIBRARY", repr(str(LIBRARY)))
    write(site / "torch" / "utils" / "cpp_extension.py", source)
    release = "Cuda compilation tools, release 13.0, V13.0.88"
    write(home / "bin" / "nvcc", f"#!/bin/sh\necho '{release}'\n", 0o755)
    for program in ("c++", "ninja"):
        write(tmp_path / "bin" / program, "#!/bin/sh\n", 0o755)
    for name in [n for n in sys.modules if n.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / name))
    return home


@pytest.fixture
def built(tmp_path) -> Callable[..., CudaKernels]:
    """Return what builds kernels of some names."""

    def build_them(*names: str, **fields: object) -> CudaKernels:
        root = tmp_path / "kernels"
        toml = fields.pop("toml", DESCRIPTION)
        for name in names:
            write(root / name / "kernel.py", "")
            write(root / name / "kernel.cu", str(fields.pop("source", "")))
            write(root / name / "kernel.toml", toml)
        asked = {"target": "sm_120", "root": str(root), "cache": str(tmp_path / "cache")}
        kernels = tuple(catalog.load(root / name) for name in names)
        return cuda_kernels.build(CompileRequest(**{**asked, "kernels": kernels, **fields}))

    return build_them


def told(tmp_path: Path) -> list[str]:
    files = (tmp_path / "cache" / "cuda").glob("*/told")
    return [line for file in files for line in file.read_text().splitlines()]


def test_what_was_built_is_read_from_its_file(built, tmp_path):
    result = built("good")
    assert (result.torch, result.nvcc, result.message) == ("2.99.0+cu130", "13.0", "")
    assert result.outcome.ok
    (one,) = result.kernels
    assert (one.kernel, one.asked, one.outcome.status, one.message) == ("good", "12.0", "ok", "")
    assert (one.file.path, one.file.format) == ("good/envcheck_good.so", "shared-object")
    assert {c.sm for box in one.file.containers for c in box.code} == {"sm_80"}
    assert codec.loads(CudaKernels, codec.dumps(result), name="result") == result


def test_each_failure_is_one_entry_with_its_reason(built):
    names = ("aborts", "hangs", "killed", "leaves", "refused", "linked", "unloaded", "mismatched")
    result = built(*names, "good", build_deadline=2, parallel=2)
    assert result.outcome.ok
    found = {k.kernel: k for k in result.kernels}
    assert tuple(found) == (*names, "good")
    ended = {
        n: (k.outcome.status, k.outcome.signal or k.outcome.code, k.message)
        for n, k in found.items()
    }
    assert ended == {
        "aborts": ("crashed", "SIGABRT", "killed by SIGABRT"),
        "hangs": ("timed-out", None, "not done after 2 s"),
        "killed": ("crashed", "SIGKILL", "killed by SIGKILL"),
        "leaves": ("exited", 3, "ended with code 3"),
        "refused": ("raised", None, 'kernel.cu(9): error: identifier "lod" is undefined'),
        "linked": (
            "raised",
            None,
            "/usr/bin/ld: cannot find -lcudart: No such file or directory",
        ),
        "unloaded": ("raised", None, "envcheck_unloaded.so: undefined symbol: _Z4gonev"),
        "mismatched": ("raised", None, found["mismatched"].message),
        "good": ("ok", None, ""),
    }
    assert found["mismatched"].message == (
        "The detected CUDA version (12.4) mismatches the version that was used to compile "
        "PyTorch (13.0). Please make sure to use the same CUDA versions."
    )
    said = "\n".join(found["refused"].outcome.stderr)
    assert 'error: expected a ";"' in said
    assert "TORCH_EXTENSION_NAME" not in said
    assert all(k.file is None for n, k in found.items() if n != "good")


@pytest.mark.parametrize(
    ("target", "asked", "expected"),
    [
        ("sm_120", "", "12.0"),
        ("sm_89", "", "8.9"),
        ("sm_90a", "", "9.0a"),
        ("sm_120", "12.0+PTX", "12.0+PTX"),
    ],
)
def test_what_is_asked_for_is_the_target_alone(built, tmp_path, target, asked, expected):
    (one,) = built("good", target=target, arch_list=asked).kernels
    assert one.asked == expected
    (line,) = told(tmp_path)
    assert line.split()[0] == expected


@pytest.mark.parametrize(
    ("processors", "kernels", "jobs"), [(1, 2, 1), (2, 2, 1), (8, 2, 4), (8, 1, 8), (2, 3, 1)]
)
def test_processors_are_shared_out_among_the_builds(built, tmp_path, processors, kernels, jobs):
    built(*"abcdef"[:kernels], parallel=processors)
    assert told(tmp_path) == [f"12.0 {jobs}"] * kernels


def test_a_kernel_for_newer_cards_is_not_tried(built, tmp_path):
    least = DESCRIPTION.replace("sm_75", "sm_89").replace("sm_80", "sm_90")
    (one,) = built("aborts", target="sm_86", toml=least).kernels
    assert (one.outcome.status, one.message) == ("not-applicable", "aborts needs sm_89")
    (one,) = built("good", target="sm_75").kernels  # of its two types one will do
    assert one.outcome.ok


def test_a_kernel_that_has_changed_is_built_elsewhere(built, tmp_path):
    for source in ("one", "two", "one"):
        built("good", source=source)
    lines = sorted(len(f.read_text().splitlines()) for f in (tmp_path / "cache").rglob("told"))
    assert lines == [1, 2]


@pytest.mark.parametrize("absent", ["nvcc", "c++", "ninja"])
def test_a_toolchain_that_lacks_a_part_builds_nothing_and_says_so(
    built, toolchain, tmp_path, absent
):
    folder = toolchain / "bin" if absent == "nvcc" else tmp_path / "bin"
    (folder / absent).unlink()
    result = built("good")
    where = str(toolchain) if absent == "nvcc" else "on the PATH"
    assert result.outcome.status == "not-applicable"
    assert result.message.startswith(f"no {absent} ")
    assert result.message.endswith(where)
    assert (result.outcome.error, result.kernels) == (result.message, ())
    assert result.nvcc == (None if absent == "nvcc" else "13.0")
    assert result.torch == "2.99.0+cu130"


def test_without_cuda_home_the_places_that_were_looked_at_are_named(built, monkeypatch):
    monkeypatch.delenv("CUDA_HOME")
    assert built("good").message == "no nvcc: neither CUDA_HOME nor the PATH leads to it"


def test_the_compiler_that_a_variable_names_is_the_one_that_counts(built, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "g++-99 -m64")
    assert built("good").message == "no g++-99 -m64 on the PATH"


def test_a_torch_without_cuda_builds_nothing(built, monkeypatch):
    monkeypatch.setenv("FAKE_TORCH_CUDA", "")
    result = built("good")
    assert (result.outcome.status, result.nvcc) == ("not-applicable", None)
    assert result.message == "torch 2.99.0+cu130 is built without CUDA"


def test_a_builder_that_cannot_be_imported_is_a_missing_part(built, tmp_path):
    write(tmp_path / "site" / "torch" / "utils" / "cpp_extension.py", "import setuptools_gone")
    result = built("good")
    assert (result.torch, result.outcome.status) == ("2.99.0+cu130", "not-applicable")
    assert result.message == ("no torch.utils.cpp_extension: No module named 'setuptools_gone'")


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("raise ImportError('no libtorch.so')", "raised", "ImportError: no libtorch.so"),
        ("import os; os.abort()", "crashed", "killed by SIGABRT"),
        ("import os; os._exit(4)", "exited", "ended with code 4"),
    ],
)
def test_a_torch_that_cannot_be_imported_builds_nothing(built, tmp_path, source, status, message):
    write(tmp_path / "site" / "torch" / "__init__.py", source)
    result = built("good")
    assert (result.torch, result.nvcc, result.kernels) == (None, None, ())
    assert (result.outcome.status, result.message) == (status, message)


def test_the_own_variables_are_left_alone(built):
    before = dict(os.environ)
    built("good")
    assert dict(os.environ) == before
    assert tempfile.gettempdir() not in sys.path
