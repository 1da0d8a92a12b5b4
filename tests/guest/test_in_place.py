"""Projects that are installed in place, from folders that were moved away, against Python itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import inventories
import packages
import pytest
from data.dist_info import install

from envcheck.core.model import Image
from envcheck.guest import installed

REQUIRED = "requirements-are-installed"

# What setuptools 83 writes, of which the finder is cut down to what finds top-level names.
FINDER = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

MAPPING: dict[str, str] = {mapping!r}
NAMESPACES: dict[str, list[str]] = {{}}


class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        base = MAPPING.get(fullname)
        for file in (f"{{base}}/__init__.py", f"{{base}}.py"):
            if base is not None and Path(file).is_file():
                return spec_from_file_location(fullname, file)
        return None


def install():
    sys.meta_path.append(_EditableFinder)
"""
FORMS = {
    "src": "x-1.pth",
    "hatch": "_x.pth",
    "finder": "__editable__.x-1.pth",
    "module": "__editable__.x-1.pth",
    "loader": "x-editable.pth",
}


def in_place(site: Path, project: Path, form: str) -> None:
    """Install `x` in place as build backends do."""
    (project / "src/x").mkdir(parents=True)
    (project / "src/x/__init__.py").touch()
    (project / "src/one.py").touch()
    files = {FORMS[form]: f"{project}/src\n".encode()}
    if form in ("finder", "module"):
        name = "x" if form == "finder" else "one"
        text = FINDER.format(mapping={name: f"{project}/src/{name}"})
        files = {
            FORMS[form]: b"import __editable___x_1_finder; __editable___x_1_finder.install()\n",
            "__editable___x_1_finder.py": text.encode(),
        }
    elif form == "loader":
        files = {FORMS[form]: b"import _x_loader\n", "_x_loader.py": b""}  # as meson-python's
    info = install(site, "x", "1", files=files)
    url = {"dir_info": {"editable": True}, "url": f"file://{project}"}
    (info / "direct_url.json").write_text(json.dumps(url))


def imports(site: Path, module: str) -> bool:
    code = f"import site; site.addsitedir({str(site)!r}); import {module}"
    command = [sys.executable, "-I", "-S", "-B", "-c", code]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def gone(site: Path) -> tuple[str, ...]:
    (package,) = installed.read([str(site)]).packages
    return package.gone


@pytest.mark.parametrize(
    ("form", "module", "path"),
    [
        ("src", "x", "src"),
        ("hatch", "x", "src"),
        ("finder", "x", "src/x"),
        ("module", "one", "src/one"),
    ],
)
def test_a_folder_that_was_moved_away_is_named(
    tmp_path: Path, form: str, module: str, path: str
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    in_place(site, project, form)
    assert gone(site) == ()
    assert imports(site, module)
    project.rename(tmp_path / "elsewhere")
    assert gone(site) == (f"{project}/{path}",)
    assert not imports(site, module)


def test_where_no_file_tells_the_projects_own_folder_counts(tmp_path: Path) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    in_place(site, project, "loader")
    assert gone(site) == ()
    project.rename(tmp_path / "elsewhere")
    assert gone(site) == (str(project),)


def test_sources_beside_a_project_that_was_trimmed_are_enough(tmp_path: Path) -> None:
    """The address names what was built, the `.pth` file what is imported."""
    site, project = tmp_path / "site", tmp_path / "project"
    in_place(site, project, "src")
    address = site / "x-1.dist-info/direct_url.json"
    address.write_text(address.read_text().replace("/project", "/another"))
    assert gone(site) == ()
    assert imports(site, "x")


def test_what_was_not_installed_in_place_is_not_looked_for(tmp_path: Path) -> None:
    info = install(tmp_path, "x", files={"x.pth": b"/nowhere/at/all\n"})
    (info / "direct_url.json").write_text(json.dumps({"dir_info": {}, "url": "file:///nowhere"}))
    assert gone(tmp_path) == ()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"def (", b"MAPPING = 1\n", None])
def test_a_finder_that_says_nothing_is_passed_over(tmp_path: Path, content: bytes | None) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    in_place(site, project, "finder")
    finder = site / "__editable___x_1_finder.py"
    finder.unlink()
    if content is not None:
        finder.write_bytes(content)
    assert gone(site) == ()


def test_what_a_package_requires_fails_and_what_nobody_requires_warns(tmp_path: Path) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    in_place(site, project, "src")
    project.rename(tmp_path / "elsewhere")
    told = f"is installed in place from {project}/src, which is not there"
    first, second = packages.ask(REQUIRED, site)
    assert packages.told([first]) == [("warn", "x 1", told)]
    assert first.remedy.startswith("pip uninstall -y x, or install x again ")
    assert second.status.value == "pass"
    install(site, "y", requires=("x",))
    (finding,) = packages.ask(REQUIRED, site)
    assert packages.told([finding]) == [("fail", "x 1", f"{told}; y requires it")]
    assert finding.remedy == "install x again from the folder where it is now"
    made = packages.inventory(site)
    assert made.environment is not None
    image = replace(
        made,
        environment=replace(made.environment, image=Image(reference="x", id="sha256:0", labels={})),
    )
    (mounted, *_) = inventories.ask(REQUIRED, image, "sm_120")
    assert mounted.status.value == "warn"  # the folder may be mounted when the image runs
