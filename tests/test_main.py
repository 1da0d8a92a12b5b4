"""Closed streams and full disks are the machine's affair: they change no verdict and no tone."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from building import SM80, SM90
from running import COMMAND, environment


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
