"""What hides an installed package, against what Python imports."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import packages
import pytest
from data.dist_info import install

from envcheck.core.model import Torch
from envcheck.guest import installed, torch_facts

TORCH, OWN = "torch-has-code-for-target", "one-distribution-owns-each-file"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    files = {"x/__init__.py": b"", "x/tests/__init__.py": b"", "tests/__init__.py": b""}
    install(tmp_path / "site", "x", files=files)
    install(tmp_path / "site", "z", files={"z.py": b""})
    return tmp_path / "site"


def imported(first: Path, site: Path, name: str) -> str:
    code = f"import {name}; print({name}.__file__)"
    run = subprocess.run(
        [sys.executable, "-S", "-B", "-c", code],
        env={**os.environ, "PYTHONPATH": f"{first}:{site}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


@pytest.mark.parametrize("path", ["x/__init__.py", "x.py", "z/__init__.py", "z.py"])
def test_what_comes_first_and_is_no_package_is_told(tmp_path: Path, site: Path, path: str) -> None:
    first = tmp_path / "first"
    (first / path).parent.mkdir(parents=True)
    (first / path).write_text("")
    (shadow,) = installed.read([str(first), str(site)]).shadows
    assert shadow.module == path[0]
    assert shadow.owner == f"{path[0]} 1.0"
    assert shadow.path == imported(first, site, path[0])
    assert installed.read([str(site), str(first)]).shadows == ()


@pytest.mark.parametrize("suffix", [".pyc", *EXTENSION_SUFFIXES])
def test_a_module_in_any_form_hides_a_package(tmp_path: Path, site: Path, suffix: str) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / f"x{suffix}").write_bytes(b"")
    (shadow,) = installed.read([str(first), str(site)]).shadows
    assert shadow.path == str(first / f"x{suffix}")


@pytest.mark.parametrize("path", ["x/data.txt", "x/sub/__init__.py", "tests/__init__.py", "x.txt"])
def test_what_ends_no_search_hides_nothing(tmp_path: Path, site: Path, path: str) -> None:
    """A folder without `__init__` comes after all regular packages."""
    first = tmp_path / "first"
    (first / path).parent.mkdir(parents=True)
    (first / path).write_text("")
    assert installed.read([str(first), str(site)]).shadows == ()
    assert imported(first, site, "x") == str(site / "x/__init__.py")


@pytest.mark.parametrize("record", [True, False])
def test_another_installation_of_it_is_told_by_others(
    tmp_path: Path, site: Path, record: bool
) -> None:
    info = install(tmp_path / "first", "x", "2", files={"x/__init__.py": b""})
    if not record:
        (info / "RECORD").unlink()
    assert installed.read([str(tmp_path / "first"), str(site)]).shadows == ()


def test_a_hidden_package_is_named_with_the_folder_that_hides_it(
    tmp_path: Path, site: Path
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "z.py").write_text("")
    (finding,) = packages.ask(OWN, first, site)
    assert packages.told([finding]) == [
        (
            "warn",
            "z 1.0",
            (
                f"{first}/z.py, which no package owns, comes first on sys.path and is imported instead "
                "of its z"
            ),
        )
    ]
    assert finding.remedy == f"take {first} off PYTHONPATH, or off the .pth file that names it"


@pytest.mark.parametrize("path", ["torch.py", "torch/__init__.py"])
def test_a_torch_that_is_none_is_what_import_takes(tmp_path: Path, path: str) -> None:
    """The installed one is not judged in its place."""
    files = {
        "torch/__init__.py": b"",
        "torch/version.py": b"__version__ = '2.8.0'\ncuda = '12.8'\n",
    }
    install(tmp_path / "site", "torch", "2.8.0", files=files)
    first = tmp_path / "first"
    (first / path).parent.mkdir(parents=True)
    (first / path).write_text("")
    folders = [str(first), str(tmp_path / "site")]
    assert torch_facts.folder(folders) == str(first)
    (finding,) = packages.ask(TORCH, first, tmp_path / "site")
    assert packages.told([finding]) == [
        (
            "fail",
            "torch 2.8.0",
            f"`import torch` takes {first / path}, which is no PyTorch and hides it",
        )
    ]
    assert finding.remedy == f"take {first} off PYTHONPATH, or off the .pth file that names it"


def test_sources_of_torch_that_were_not_built_are_not_called_damaged(tmp_path: Path) -> None:
    install(tmp_path / "site", "torch", "2.8.0", files={"torch/__init__.py": b""})
    first = tmp_path / "first"
    (first / "torch").mkdir(parents=True)
    (first / "torch/__init__.py").write_text("")
    torch = Torch(version="2.9.0a0+git", cuda="12.8")
    (finding,) = packages.ask(TORCH, first, tmp_path / "site", torch=torch)
    assert packages.told([finding]) == [
        (
            "error",
            "torch 2.9.0a0+git",
            (
                f"torch/lib/libtorch_cuda.so is missing where {first}/torch/__init__.py is, which hides "
                "torch 2.8.0"
            ),
        )
    ]
    assert "PYTHONPATH" in finding.remedy


@pytest.mark.parametrize("content", [None, b"", b"version = (", b"\0" * 60, b"hello = 1\n"])
def test_an_installed_torch_that_does_not_say_its_version_is_not_absent(
    tmp_path: Path, content: bytes | None
) -> None:
    files = {
        "torch/__init__.py": b"import torch.version\n",
        "torch/version.py": b"__version__ = '2'",
    }
    install(tmp_path, "torch", "2.8.0", files=files)
    (tmp_path / "torch/version.py").unlink()
    if content is not None:
        (tmp_path / "torch/version.py").write_bytes(content)
    assert torch_facts.read_torch(str(tmp_path)) is None
    (finding,) = packages.ask(TORCH, tmp_path)
    assert (finding.status.value, finding.subject) == ("error", "torch 2.8.0")
    assert finding.remedy == "pip install --force-reinstall --no-deps 'torch==2.8.0'"
    assert finding.required
