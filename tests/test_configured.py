"""envcheck.toml as `check` and `build` take it: read first, one way, below the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from building import SM80, SM120_LIBRARY, venv, wheel
from running import envcheck, report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose settings name two cards."""
    (tmp_path / "envcheck.toml").write_text('architectures = ["ada", "rtx-5090"]\n')
    return tmp_path


def names(document: dict) -> list[str]:
    return [each["target"]["name"] for each in document["reports"]]


def test_check_takes_the_architectures_of_the_file(folder: Path) -> None:
    assert names(report("check", cwd=folder)) == ["ada", "rtx-5090"]


def test_the_command_line_stands_above_the_file(folder: Path, tmp_path: Path) -> None:
    assert report("check", "--arch", "hopper", cwd=folder)["target"]["name"] == "hopper"
    package = wheel(tmp_path, "ops", "1.0", {"ops/a.so": SM120_LIBRARY.read_bytes()})
    place = venv(tmp_path / "venv", package)
    words = ("check", "--python", place, "--arch", "blackwell", "-q")
    assert envcheck(*words, cwd=tmp_path).returncode == 0
    (folder / "envcheck.toml").write_text('require = "compiled"\n')
    strict = envcheck(*words, cwd=tmp_path)
    assert (strict.returncode, strict.stdout.split()[0]) == (11, "inconclusive")
    assert envcheck(*words, "--require", "scanned", cwd=tmp_path).returncode == 0


def test_check_takes_the_file_that_is_named(folder: Path, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    document = report("check", "--config", folder / "envcheck.toml", cwd=elsewhere)
    assert names(document) == ["ada", "rtx-5090"]


@pytest.mark.parametrize("command", ["check", "build"])
@pytest.mark.parametrize("arch", [(), ("--arch", "ada"), ("--arch", "native")])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("architecture = []\n", "envcheck.toml: architecture: unknown key"),
        ('architectures = ["adda"]\n', "envcheck.toml: architectures[0]"),
        ('require = "excuted"\n', "envcheck.toml: require"),
        ('kernels = ["gone"]\n', "envcheck.toml: kernels[0]"),
        ("require = \n", "envcheck.toml"),
    ],
)
def test_a_mistake_is_told_before_a_card_is_looked_for(
    tmp_path: Path, command: str, arch: tuple[str, ...], text: str, said: str
) -> None:
    (tmp_path / "envcheck.toml").write_text(text)
    done = envcheck(command, *arch, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "try: " in done.stderr


@pytest.mark.parametrize("command", ["check", "build"])
def test_without_an_architecture_nothing_is_looked_at(tmp_path: Path, command: str) -> None:
    done = envcheck(command, cwd=tmp_path)
    assert done.returncode == 2
    assert f"nothing says for which architecture to {command}" in done.stderr
    assert 'architectures = ["blackwell"]' in done.stderr


def test_the_settings_that_are_passed_over_are_named(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.envcheck]\nrequire = "executed"\n')
    done = envcheck("check", "--format", "json", cwd=folder)
    assert names(json.loads(done.stdout)) == ["ada", "rtx-5090"]
    assert "pyproject.toml: [tool.envcheck] is passed over for envcheck.toml" in done.stderr


def test_scan_and_judge_read_no_settings(tmp_path: Path) -> None:
    (tmp_path / "envcheck.toml").write_text("no = such\n")
    facts = tmp_path / "facts.json"
    words = ("--arch", "ampere", "-q", "--save-inventory", facts)
    assert envcheck("scan", SM80, *words, cwd=tmp_path).returncode == 0
    assert envcheck("judge", facts, "--arch", "ampere", "-q", cwd=tmp_path).returncode == 0
    for command in ("scan", "judge"):
        done = envcheck(command, facts, cwd=tmp_path)
        assert done.returncode == 2
        assert "--arch" in done.stderr
