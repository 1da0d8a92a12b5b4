"""Exports through a real rsync: to its daemon on this machine, and by a shell that is none."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import COMMAND, environment

from envcheck.engine import rsync
from envcheck.engine.rsync import Rsync
from envcheck.errors import FileUnavailable
from envcheck.exporting import digests
from envcheck.exporting.looking import look
from envcheck.exporting.target import CHANGED, Delivery

needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
NAMES = ("plain", "a/b c", "new\nline", "back\\slash", "-rf", "\\#012", os.fsdecode(b"a/\xff"))
# Starts what ssh would have started on the other machine.
SHELL = '#!/bin/sh\nshift\nexec sh -c "$*"\n'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "a").mkdir(parents=True)
    return folder


@pytest.fixture
def to(tmp_path: Path) -> Path:
    folder = tmp_path / "to"
    folder.mkdir()
    return folder


@pytest.fixture
def served(tmp_path: Path, to: Path) -> Iterator[str]:
    """The address of a daemon that serves `to`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "rsyncd.conf"
    settings.write_text(
        f"use chroot = no\n[results]\npath = {to}\nread only = no\n"
        f"uid = {os.geteuid()}\ngid = {os.getegid()}\n"
    )
    command = ["rsync", "--daemon", "--no-detach", f"--config={settings}", "--address=127.0.0.1"]
    with subprocess.Popen([*command, f"--port={port}"]) as daemon:
        for _ in range(200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"rsync://127.0.0.1:{port}/results"
        daemon.terminate()


def deliver(target: Rsync, run: Path) -> Delivery:
    return target.deliver(str(run), look(str(run), ()).files, lambda: False)


def checked(to: Path) -> int:
    """Return how many files sha256sum finds there as they were noted; it must find no other."""
    done = subprocess.run(
        ["sha256sum", "--strict", "--check", digests.NAME], cwd=to, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.count(b": OK")


@pytest.mark.parametrize(
    ("target", "remote"),
    [("host:results", True), ("me@host:/results", True), ("rsync://host/results", True),
     ("/results", False), ("results", False), ("./with:colon", False), ("/with:colon", False)],
)  # fmt: skip
def test_what_rsync_takes_for_another_machine(target: str, remote: bool) -> None:
    # As `man rsync` has it: a colon before the first slash.
    assert rsync.is_remote(target) is remote


@needs_rsync
def test_a_host_alone_is_the_users_folder_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, home = tmp_path / "shell", tmp_path / "home"
    home.mkdir()
    shell.write_text(SHELL.replace("exec", f"cd {home}; exec"))
    shell.chmod(0o700)
    monkeypatch.setenv("RSYNC_RSH", str(shell))
    (run / "x").write_bytes(b"1")
    target = Rsync("host:")
    target.prepare()
    assert deliver(target, run).copied == 1
    assert checked(home) == 1


@needs_rsync
def test_files_of_all_names_arrive_verified_and_once(run: Path, to: Path, served: str) -> None:
    for name in NAMES:
        (run / name).write_bytes(os.fsencode(name))
    target = Rsync(served)
    target.prepare()
    found = deliver(target, run)
    assert found.failed == {}
    assert found.arrived == {n: hashlib.sha256(os.fsencode(n)).hexdigest() for n in NAMES}
    assert (found.copied, found.size) == (len(NAMES), sum(len(os.fsencode(n)) for n in NAMES))
    assert checked(to) == len(NAMES)
    for name in NAMES:
        assert (to / name).read_bytes() == os.fsencode(name)
    assert deliver(target, run) == Delivery()


@needs_rsync
def test_another_export_goes_on_where_one_ended(run: Path, to: Path, served: str) -> None:
    for name in ("same", "differs"):
        (run / name).write_bytes(name.encode())
    first = Rsync(served)
    first.prepare()
    deliver(first, run)
    # Of the same size and time, so that only its bytes tell.
    status = (to / "differs").stat()
    (to / "differs").write_bytes(b"DIFFERS")
    os.utime(to / "differs", ns=(status.st_atime_ns, status.st_mtime_ns))
    (to / "of somebody else").write_bytes(b"kept")
    (run / "same").unlink()
    again = Rsync(served)
    again.prepare()
    found = deliver(again, run)
    assert (found.copied, set(found.arrived)) == (1, {"differs"})
    assert (to / "differs").read_bytes() == b"differs"
    assert (to / "of somebody else").exists()
    assert checked(to) == 2


@needs_rsync
def test_a_link_that_took_a_files_place_is_not_followed(
    run: Path, to: Path, served: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (run / "x").write_bytes(b"result")
    files = look(str(run), ()).files
    (run / "x").unlink()
    (run / "x").symlink_to(tmp_path / "secret")
    target = Rsync(served)
    target.prepare()
    found = target.deliver(str(run), files, lambda: False)
    assert (set(found.failed), found.arrived) == ({"x"}, {})
    assert not (to / "x").exists()


@needs_rsync
def test_a_file_that_changes_meanwhile_is_not_noted(run: Path, to: Path, served: str) -> None:
    (run / "x").write_bytes(b"one")
    files = look(str(run), ()).files
    (run / "x").write_bytes(b"two")
    target = Rsync(served)
    target.prepare()
    found = target.deliver(str(run), files, lambda: False)
    assert (found.failed, found.arrived) == ({"x": CHANGED}, {})
    assert not (to / digests.NAME).exists()


@needs_rsync
def test_a_file_that_cannot_be_written_there_fails_alone(run: Path, to: Path, served: str) -> None:
    for name in ("x", "y"):
        (run / name).write_bytes(b"1")
    (to / "x" / "inside").mkdir(parents=True)
    target = Rsync(served)
    target.prepare()
    found = deliver(target, run)
    assert set(found.arrived) == {"y"}
    assert set(found.failed) == {"x"}
    assert checked(to) == 1


@needs_rsync
def test_a_place_that_rsync_does_not_reach_is_told_before(served: str) -> None:
    with pytest.raises(FileUnavailable, match="does not get there"):
        Rsync(f"{served}-that-is-not-there").prepare()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(FileUnavailable, match="does not get there"):
        Rsync(f"rsync://127.0.0.1:{port}/results").prepare()


@needs_rsync
def test_a_connection_that_is_lost_is_told_and_comes_back(run: Path, to: Path, served: str) -> None:
    (run / "x").write_bytes(b"1")
    target = Rsync(served)
    target.prepare()
    away = to.rename(to.with_name("away"))
    found = deliver(target, run)
    assert found.failed
    assert found.arrived == {}
    away.rename(to)
    assert deliver(target, run).copied == 1
    assert checked(to) == 1


@needs_rsync
def test_the_command_exports_by_a_remote_shell(run: Path, to: Path, tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text(SHELL)
    shell.chmod(0o700)
    words = ("sh", "-c", "echo 1 > one; exit 5")
    target = f"host:{to}/with space"
    options = ("export", "--every=1s", "--from", str(run), "--to", target, "--")
    done = subprocess.run(
        [*COMMAND, *options, *words], cwd=run, env=environment({"RSYNC_RSH": str(shell)}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "1 file(s), 2 bytes" in done.stderr
    assert checked(to / "with space") == 1
