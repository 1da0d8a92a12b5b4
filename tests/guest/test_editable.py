"""Projects that pip installed in place, and what of their folders counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from building import OBJECTS

from envcheck.engine import local
from envcheck.guest import editable

CODE = (OBJECTS / "nordc_s80.so").read_bytes()
SUFFIX = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu.so"


def project(folder: Path, layout: str, *, metadata: str) -> Path:
    """Write a project with an extension, and beside it what no import comes to."""
    package = folder / layout / "mine_ops"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / f"_ops{SUFFIX}").write_bytes(CODE)
    for beside in ("build/lib/mine_ops", "build/lib.linux-x86_64-cpython-311/mine_ops",
                   "tests/data/elf", "third_party/thing", "mine.libs"):  # fmt: skip
        (folder / beside).mkdir(parents=True)
        (folder / beside / f"_ops{SUFFIX}").write_bytes(CODE)
    (folder / "pyproject.toml").write_text(metadata)
    return package / f"_ops{SUFFIX}"


def installed(tmp_path: Path, folder: Path, *config: str) -> str:
    command = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"]
    subprocess.run(command, check=True, timeout=120)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "-e"]
    done = subprocess.run(
        [*pip, str(folder), *config], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        pytest.skip(f"no index to take the build backend from: {done.stderr[-300:]}")
    return python


SETUPTOOLS = """[build-system]
requires = ["setuptools>=70"]
build-backend = "setuptools.build_meta"
[project]
name = "mine-ops"
version = "1"
[tool.setuptools]
packages = ["mine_ops"]
"""
HATCH = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "mine-ops"
version = "1"
"""


@pytest.mark.parametrize(
    ("metadata", "layout", "config"),
    [
        (SETUPTOOLS, ".", ()),
        (SETUPTOOLS + 'package-dir = {"" = "src"}\n', "src", ()),
        (SETUPTOOLS, ".", ("--config-settings=editable_mode=compat",)),
        (HATCH, ".", ()),
        (HATCH, "src", ()),
    ],
    ids=["finder", "src", "path of the project", "hatchling", "hatchling src"],
)
def test_earlier_builds_and_data_of_tests_are_not_what_is_imported(
    tmp_path: Path, metadata: str, layout: str, config: tuple[str, ...]
) -> None:
    imported = project(tmp_path / "project", layout, metadata=metadata)
    python = installed(tmp_path, tmp_path / "project", *config)
    where = "import mine_ops, sys; print(mine_ops.__file__)"
    real = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    assert os.path.dirname(real.stdout.strip()) == str(imported.parent.resolve())
    places = local.collect(python).places
    assert [p.absolute for p in places] == [str(imported.resolve())]


def test_a_finder_that_renames_a_package_and_one_inside_another(tmp_path: Path) -> None:
    finder = tmp_path / "__editable___x_1_finder.py"
    finder.write_text("from __future__ import annotations\nMAPPING: dict[str, str] = "
                      "{'a.b': '/p/a/b', 'c': '/p/other', **{}}\nNAMESPACES = {}\n")  # fmt: skip
    assert editable._mapping(str(finder)) == {"a.b": "/p/a/b", "c": "/p/other"}


@pytest.mark.parametrize("text", ["", "MAPPING = {", "MAPPING = dict()", "MAPPING = 3", "\0"])
def test_a_finder_that_says_nothing_maps_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.py").write_text(text)
    assert editable._mapping(str(tmp_path / "f.py")) == {}
    assert editable._mapping(str(tmp_path / "absent.py")) == {}


def test_a_setup_py_among_installed_packages_makes_no_project_of_them(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    assert editable.roots([str(tmp_path)]) == {str(tmp_path): frozenset({"setup.py"})}
    (tmp_path / "thing-1.dist-info").mkdir()
    assert editable.roots([str(tmp_path)]) == {str(tmp_path): None}


def test_a_namespace_package_of_a_project_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "space" / "inner").mkdir(parents=True)
    (tmp_path / "space" / "inner" / "__init__.py").write_text("")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / f"_C{SUFFIX}").write_bytes(CODE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.so").write_bytes(CODE)
    assert editable.roots([str(tmp_path)])[str(tmp_path)] == {"pyproject.toml", "space", "flat"}
