"""Files that a real interpreter cannot decode when it starts, beside what that interpreter does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from inventories import ask, environment

from envcheck.core import codec
from envcheck.core.model import Inventory
from envcheck.core.request import Collected
from envcheck.engine import local

STARTS = "interpreter-starts"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Make an environment without packages, and return its interpreter."""
    command = [os.path.realpath(sys.executable), "-m", "venv", "--without-pip", tmp_path / "venv"]
    subprocess.run(command, check=True, timeout=120)
    return tmp_path / "venv" / "bin" / "python"


def site(python: Path) -> Path:
    (folder,) = python.parent.parent.glob("lib/python*/site-packages")
    return folder


def starts(python: Path) -> bool:
    done = subprocess.run([python, "-c", ""], capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def judge(python: Path) -> list[tuple[str, str, str]]:
    collected: Collected = local.collect(str(python))
    inventory = Inventory(source="environment", environment=collected.environment)
    codec.loads(Inventory, codec.dumps(inventory), name="inventory")
    found = ask(STARTS, inventory, "sm_90")
    return [(f.status.value, Path(f.subject).name, f.remedy) for f in found]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(
    "raw",
    [
        b"caf\xe9\n",
        "caf\u00e9\n".encode(),
        b"/tmp\nimport no_such\n\xff\n",
        b"\xef\xbb\xbf/\n",
        b"\0\n",
    ],
    ids=["latin", "utf-8", "after an import", "mark", "nul"],
)
def test_a_pth_file_is_judged_as_its_interpreter_takes_it(
    python: Path, raw: bytes, locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    (site(python) / "x.pth").write_bytes(raw)
    ((status, subject, remedy),) = judge(python)
    assert (status == "pass") == starts(python)
    if status == "fail":
        assert subject == "x.pth"
        # The remedy is a command, and the interpreter starts after it.
        start = f"{remedy}; {python} -c ''"
        assert subprocess.run(["bash", "-c", start], timeout=60, check=False).returncode == 0


def test_a_pyvenv_cfg_that_is_no_utf_8_ends_the_start(python: Path) -> None:
    with (python.parent.parent / "pyvenv.cfg").open("ab") as handle:
        handle.write(b"prompt = caf\xe9\n")
    assert not starts(python)
    ((status, subject, remedy),) = judge(python)
    assert (status, subject) == ("fail", "pyvenv.cfg")
    subprocess.run(["bash", "-c", remedy], check=True, timeout=60)
    assert starts(python)


def test_what_was_not_looked_for_is_no_pass() -> None:
    (finding,) = ask(STARTS, environment(), "sm_90")
    assert finding.status.value == "skip"
