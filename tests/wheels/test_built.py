"""The wheel of envcheck itself, built as a user's pip builds it: `pytest -m wheels`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import jsonschema
import pytest
from building import SM89_SM120
from running import environment

from envcheck import catalog

pytestmark = [pytest.mark.wheels, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the checkout and return what it printed."""
    done = subprocess.run(
        list(map(os.fspath, command)),
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
    run(*pip, ROOT, cwd=folder)
    (path,) = folder.glob("envcheck_gpu-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of commands of a fresh environment with that wheel alone."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    run(folder / "venv/bin/python", "-m", "pip", "install", "--quiet", built, cwd=folder)
    return folder / "venv" / "bin"


def test_the_wheel_holds_what_the_program_reads(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
        targets = archive.read("envcheck/images/targets.toml")
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        headers = Parser().parsestr(archive.read(metadata).decode())
    assert targets == (ROOT / "images" / "targets.toml").read_bytes()
    kernels = {f"envcheck/{p.relative_to(ROOT)}" for p in (ROOT / "kernels").rglob("*.*")}
    assert len(kernels) > 20
    assert kernels == {n for n in names if n.startswith("envcheck/kernels/")}
    schemas = {f"envcheck/schema/{p.name}" for p in (ROOT / "envcheck" / "schema").glob("*.json")}
    assert len(schemas) >= 3
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "envcheck").rglob("*.py")}
    assert {*schemas, *modules, "envcheck/py.typed"} <= names
    # Nothing of the tests, nothing at the top level that shadows somebody else's package.
    assert {n.partition("/")[0] for n in names} == {"envcheck", metadata.partition("/")[0]}
    assert headers["Name"] == "envcheck-gpu"
    assert headers["License-Expression"] == "Apache-2.0"


def test_scan_works_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    sample = tmp_path / "sample.fatbin"
    sample.write_bytes(SM89_SM120.read_bytes())
    said = run(
        installed / "envcheck", "scan", "sample.fatbin", "--arch", "rtx-5090", "--format", "json",
        cwd=tmp_path,
    )  # fmt: skip
    report = json.loads(said)
    assert (report["verdict"], report["findings"][0]["subject"]) == ("compatible", "sample.fatbin")
    where = run(
        installed / "python", "-c", "import envcheck; print(envcheck.__file__)", cwd=tmp_path
    )
    schema = Path(where.strip()).parent / "schema" / "report-v1.json"
    assert ROOT not in schema.parents
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(report)


def test_every_command_works_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    command = installed / "envcheck"
    assert "blackwell" in run(command, "targets", cwd=tmp_path)
    assert "device-code" in run(command, "explain", cwd=tmp_path)
    run(command, "keygen", "-o", "key.pem", cwd=tmp_path)
    manifest = ["--sign", "key.pem", "-o", "manifest.json"]
    check = [command, "check", "--arch", "ada", *manifest]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    # Nothing in it has device code, so nothing is verified and that is what is signed.
    assert done.returncode == 11, done.stderr
    said = run(command, "verify", "manifest.json", "--key", "key.pub", cwd=tmp_path)
    assert "signed verdict: inconclusive" in said


def test_its_kernels_are_those_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    tell = (
        "from envcheck import catalog; where = catalog.shipped(); "
        "print(where, *sorted(k.name + k.digest for k in catalog.load_all([where])))"
    )
    where, *kernels = run(installed / "python", "-c", tell, cwd=tmp_path).split()
    assert ROOT not in Path(where).parents
    assert kernels == sorted(k.name + k.digest for k in catalog.load_all([ROOT / "kernels"]))


def test_its_own_environment_satisfies_its_requirements(installed: Path, tmp_path: Path) -> None:
    assert "No broken requirements" in run(installed / "python", "-m", "pip", "check", cwd=tmp_path)
