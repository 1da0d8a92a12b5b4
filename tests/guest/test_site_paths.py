"""The path that is worked out is the one that a real start of the interpreter has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envcheck.guest import site_paths

ROOT = Path(__file__).parents[2]
SAY = "import sys; print('\\n'.join(p for p in sys.path if p))"
WORK_OUT = (
    "import sys; bare = [p for p in sys.path if p]; sys.path.insert(0, {root!r}); "
    "from envcheck.guest.site_paths import job_path; print('\\n'.join(job_path(bare)))"
)


def said(python, *flags, code, env):
    command = [python, *flags, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=60)
    return done.stdout.split("\n")


@pytest.fixture
def variables(tmp_path):
    home = tmp_path / "home"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    user = home / ".local" / "lib" / version / "site-packages"
    for folder in (user, home / "named", home / "linked"):
        folder.mkdir(parents=True)
    (user / "a.pth").write_text(f"# a comment\n{home / 'linked'}\nimport sys\nmissing\n\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(home / "named")}


@pytest.mark.parametrize("kind", ["base", "venv", "venv with the system's packages"])
@pytest.mark.parametrize("user", ["user site", "no user site"])
def test_it_is_the_path_of_a_real_start(tmp_path, variables, kind, user):
    python = os.path.realpath(sys.executable)
    if kind != "base":
        system = ["--system-site-packages"] if "system" in kind else []
        command = [python, "-m", "venv", "--without-pip", *system, str(tmp_path / "venv")]
        subprocess.run(command, check=True, timeout=120)
        python = str(tmp_path / "venv" / "bin" / "python")
    if user == "no user site":
        variables["PYTHONNOUSERSITE"] = "1"
    real = said(python, code=SAY, env=variables)
    assert said(python, "-E", "-S", code=WORK_OUT.format(root=str(ROOT)), env=variables) == real
    linked = str(Path(variables["HOME"]) / "linked")
    assert (linked in real) == (user == "user site" and kind != "venv")


def test_a_pth_file_that_cannot_be_read_or_is_no_text_adds_nothing(tmp_path):
    (tmp_path / "binary.pth").write_bytes(b"\xff\x00\n")
    (tmp_path / "folder.pth").mkdir()
    (tmp_path / ".hidden.pth").write_text(str(tmp_path) + "\n")
    assert site_paths._of_pth_files(str(tmp_path)) == []
