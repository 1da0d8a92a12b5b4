"""Closed streams and full disks are the machine's affair: they change no verdict and no tone."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from building import SM80, SM90
from running import COMMAND, environment

from envcheck import own_library


def shell(line: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run one line of shell, with `envcheck` for the command under test."""
    command = shlex.join(map(str, COMMAND))
    return subprocess.run(
        ["bash", "-c", line.replace("envcheck", command, 1)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        cwd=folder,
        start_new_session=True,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_verdict(closed: str) -> None:
    done = shell(f"envcheck scan {SM80} --arch hopper {closed}")
    assert (done.returncode, done.stderr) == (10, "")
    assert shell(f"envcheck scan {SM90} --arch hopper {closed}").returncode == 0


@pytest.mark.parametrize("command", ["targets", "--help", f"scan {SM90} --arch hopper"])
def test_a_full_disk_behind_stdout_is_told_as_one(command: str) -> None:
    done = shell(f"envcheck {command} > /dev/full")
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_keygen_with_nobody_to_ask_is_a_usage_error(tmp_path: Path) -> None:
    done = shell("envcheck keygen --passphrase -o k.pem < /dev/null", tmp_path)
    assert done.returncode == 2
    assert "ENVCHECK_PASSPHRASE" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_job_that_is_cancelled_leaves_nothing_running(
    tmp_path: Path, number: signal.Signals
) -> None:
    """CI, `timeout` and a closed terminal do not send Ctrl-C."""
    pid, python = tmp_path / "pid", tmp_path / "python"
    python.write_text(f"#!/bin/sh\nsleep 300 &\necho $! > {pid}.new\nmv {pid}.new {pid}\nwait\n")
    python.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [*COMMAND, "check", "--arch", "ada", "--python", str(python)],
        env=environment({"TMPDIR": str(tmp_path / "tmp")}),
        stderr=subprocess.DEVNULL,
    ) as process:
        for _ in range(200):
            if pid.exists():
                break
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    time.sleep(0.2)
    status = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"
    assert not list((tmp_path / "tmp").iterdir())


def test_a_current_folder_that_may_not_be_read_asks_for_no_room(tmp_path: Path) -> None:
    """Root may read anything, unless it is not let."""
    if os.geteuid() or shutil.which("setpriv") is None:
        pytest.skip("only root may give a folder away")
    closed = tmp_path / "closed"
    closed.mkdir()
    os.chown(closed, 65534, 65534)
    closed.chmod(0o500)
    words = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *COMMAND, "check"]
    done = subprocess.run(
        [*words, "--arch", "ada"], cwd=closed, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 3
    assert "Permission denied" in done.stderr
    assert "cd to a folder that this user may read" in done.stderr


def test_a_current_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && exec {' '.join(map(str, COMMAND))} scan . --arch ada"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 3
    assert "try: cd to a folder that is there" in done.stderr
    assert "TMPDIR" not in done.stderr


@pytest.mark.parametrize(
    ("file", "content"),
    [("random.py", "x = 1\n"), ("json/__init__.py", "raise SystemError\n")],
)
def test_a_module_that_hides_the_standard_librarys_is_named(
    tmp_path: Path, file: str, content: str
) -> None:
    """PYTHONPATH counts for envcheck's own interpreter as for any other."""
    hiding = tmp_path / file.partition("/")[0]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)
    done = shell(f"PYTHONPATH={tmp_path} envcheck scan {SM90} --arch hopper")
    assert done.returncode == 1
    assert f"try: rename {hiding} or leave its folder out of PYTHONPATH" in done.stderr
    assert "ENVCHECK_DEBUG" not in done.stderr


def test_a_folder_of_modules_with_other_names_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "randoms.py").touch()
    (tmp_path / "json").mkdir()  # without a first file, the library's own is found
    done = shell(f"PYTHONPATH={tmp_path} envcheck scan {SM90} --arch hopper")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_pythons_library_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    told = own_library.remedy(ModuleNotFoundError("No module named 'math'", name="math"))
    assert told is not None
    assert told.startswith("unset PYTHONHOME: ")
    assert own_library.remedy(ModuleNotFoundError("No module named 'x'", name="x")) is None
    monkeypatch.delenv("PYTHONHOME")
    assert own_library.remedy(ModuleNotFoundError("No module named 'math'", name="math")) is None
