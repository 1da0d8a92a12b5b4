"""What PyTorch and Triton say in their files, from files made by hand; real ones in tests/wheels."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from envcheck.core.model import Assembler
from envcheck.guest import torch_facts

# The mangled names by `c++filt`: torchCheckFail(char const*, char const*, unsigned int,
# std::string const&) of libstdc++'s old ABI, and with std::__cxx11::basic_string of the new.
OLD = b"\0_ZN3c106detail14torchCheckFailEPKcS2_jRKSs\0"
NEW = (
    b"\0_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcE"
    b"SaIcEEE\0"
)
VERSION = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.8.0+cu128'
debug = False
cuda: Optional[str] = '12.8'
git_version = 'abc'
hip: Optional[str] = None
"""


def torch(site: Path, *, version: str = VERSION, python: bytes = b"", c10: bytes = b"") -> Path:
    lib = site / "torch" / "lib"
    lib.mkdir(parents=True)
    (site / "torch" / "version.py").write_text(version)
    (lib / "libtorch_python.so").write_bytes(python)
    (lib / "libc10.so").write_bytes(c10)
    return site


def test_version_cuda_list_and_abi_are_read(tmp_path: Path) -> None:
    libraries = b"\0nosm_here\0x\0sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\0sm_99 sm_98\0"
    found = torch_facts.read_torch(str(torch(tmp_path, python=libraries, c10=NEW)))
    assert found is not None
    assert (found.version, found.cuda, found.hip) == ("2.8.0+cu128", "12.8", None)
    assert found.arch_list == ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert found.cxx11_abi is True


@pytest.mark.parametrize(("symbols", "abi"), [(OLD, False), (NEW, True), (b"\0nothing\0", None)])
def test_the_abi_is_that_of_the_exported_symbol(
    tmp_path: Path, symbols: bytes, abi: bool | None
) -> None:
    found = torch_facts.read_torch(str(torch(tmp_path, c10=symbols)))
    assert found is not None
    assert found.cxx11_abi is abi


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        (b"\0sm_90 sm_90a compute_90\0", ("sm_90", "sm_90a", "compute_90")),
        (b"\0sm_80 sm_100f\0", ("sm_80", "sm_100f")),
        (b"\0sm_90\0", ()),  # one word alone is not told from any other mention
        (b"\0sm_80 is old and sm_90 is new\0", ()),
        (b"", ()),
        (b"\0" + b"sm_80 " * 5000 + b"\0", ()),
    ],
)
def test_the_arch_list_is_a_string_of_nothing_else(
    tmp_path: Path, text: bytes, listed: tuple[str, ...]
) -> None:
    found = torch_facts.read_torch(str(torch(tmp_path, python=text)))
    assert found is not None
    assert found.arch_list == listed


@pytest.mark.parametrize(
    ("version", "cuda", "hip"),
    [
        ("__version__ = '2.8.0+cpu'\ncuda = None\n", None, None),
        ("__version__ = '2.8.0'\nhip: str = '6.4'\ncuda: str | None = None\n", None, "6.4"),
        ("__version__ = '1'\nif True:\n    cuda = '9'\n", None, None),
    ],
)
def test_builds_without_cuda_are_told(
    tmp_path: Path, version: str, cuda: str | None, hip: str | None
) -> None:
    found = torch_facts.read_torch(str(torch(tmp_path, version=version)))
    assert found is not None
    assert (found.cuda, found.hip) == (cuda, hip)


@pytest.mark.parametrize(
    "version",
    [
        "",
        "__version__ = '2",
        "__version__ = 2.8\n",
        "__version__ = open('/tmp/x').read()\n",
        "(" * 100_000,
        "x = " + "-" * 200_000 + "1\n",
        "\0",
    ],
    ids=["empty", "cut", "a number", "a call", "nested", "deep", "NUL"],
)
def test_a_version_file_that_does_not_tell_is_no_torch_and_no_crash(
    tmp_path: Path, version: str
) -> None:
    assert torch_facts.read_torch(str(torch(tmp_path, version=version))) is None


def test_the_version_file_is_read_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    version = f"{VERSION}\nopen({str(trace)!r}, 'w')\n"
    assert torch_facts.read_torch(str(torch(tmp_path, version=version))) is not None
    assert not trace.exists()


def test_fifos_and_folders_in_place_of_files_are_as_good_as_absent(tmp_path: Path) -> None:
    site = torch(tmp_path)
    lib = site / "torch" / "lib"
    (lib / "libtorch_python.so").unlink()
    os.mkfifo(lib / "libtorch_python.so")
    (lib / "libc10.so").unlink()
    (lib / "libc10.so").mkdir()
    found = torch_facts.read_torch(str(site))
    assert found is not None
    assert (found.arch_list, found.cxx11_abi) == ((), None)
    (site / "torch" / "version.py").unlink()
    os.mkfifo(site / "torch" / "version.py")
    assert torch_facts.read_torch(str(site)) is None


def test_no_torch_and_no_triton_are_none(tmp_path: Path) -> None:
    assert torch_facts.read_torch(str(tmp_path)) is None
    assert torch_facts.read_triton(str(tmp_path), "3.8.0") is None


def test_assemblers_are_named_with_the_release_that_they_print(tmp_path: Path) -> None:
    folder = tmp_path / "triton" / "backends" / "nvidia" / "bin"
    folder.mkdir(parents=True)
    said = b"\0Cuda compilation tools, release %s, V%s.33\0"
    (folder / "ptxas").write_bytes(said % (b"12.9", b"12.9"))
    (folder / "ptxas-blackwell").write_bytes(
        b"Cuda compilation tools, release x" + said % (b"13.3", b"13.3")
    )
    (folder / "ptxas-odd").write_bytes(b"hello")
    (folder / "cuobjdump").write_bytes(said % (b"12.8", b"12.8"))
    for path in folder.iterdir():
        path.chmod(0o755)
    found = torch_facts.read_triton(str(tmp_path), "3.8.0")
    assert found is not None
    assert found.version == "3.8.0"
    assert found.assemblers == (
        Assembler(name="ptxas", version="12.9"),
        Assembler(name="ptxas-blackwell", version="13.3"),
        Assembler(name="ptxas-odd", version=None),
    )


def test_why_nobody_can_run_an_assembler(tmp_path: Path) -> None:
    folder = tmp_path / "triton" / "backends" / "nvidia" / "bin"
    folder.mkdir(parents=True)
    program = Path(sys.executable).resolve().read_bytes()
    said = {
        "ptxas": program,
        "ptxas-a": program[: len(program) // 2],
        "ptxas-b": program[:20],
        "ptxas-c": b"",
        "ptxas-d": b"#!/bin/sh\nexec ptxas",
        "ptxas-e": program,
    }
    for name, content in said.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644 if name == "ptxas-e" else 0o755)
    (folder / "ptxas-f").symlink_to("nothing")
    (folder / "ptxas-g").mkdir()
    found = torch_facts.read_triton(str(tmp_path), "3.8.0")
    assert found is not None
    assert [a.problem for a in found.assemblers] == [
        *(None, "is cut off", "is cut off", "is empty", None),
        *("is not executable", "is a link to nothing", "is no file"),
    ]


def test_triton_without_assemblers_has_none(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    found = torch_facts.read_triton(str(tmp_path), "3.8.0")
    assert found is not None
    assert found.assemblers == ()
