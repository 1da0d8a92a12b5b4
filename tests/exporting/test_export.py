"""`envcheck export` as its users run it: real jobs, real signals, real faults of the target."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from running import COMMAND, envcheck, environment

from envcheck.exporting import digests
from envcheck.exporting.folder import ASIDE

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: only root can")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "to"


def export(run: Path, to: Path | str, *words: str | Path, every: str = "1h") -> list[str]:
    options = ("export", "--every", every, "--from", run, "--to", to, "--", *words)
    return [*COMMAND, *map(os.fspath, options)]


def start(command: list[str], **options: object) -> subprocess.Popen[bytes]:
    fields = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    return subprocess.Popen(command, **{**fields, **options})


def shell(run: Path, to: Path | str, script: str, every: str = "1h") -> tuple[int, str]:
    """Run a shell script as the job; return the exit code and what was written to stderr."""
    command = export(run, to, "sh", "-c", script, every=every)
    done = subprocess.run(
        command, cwd=run, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def exported(to: Path) -> set[str]:
    """Return what is there, once sha256sum has verified all of it."""
    check = ["sha256sum", "--strict", "--quiet", "--check", digests.NAME]
    subprocess.run(check, cwd=to, check=True, capture_output=True)
    assert not list((to / ASIDE).iterdir())
    found = {p.relative_to(to).as_posix() for p in to.rglob("*") if p.is_file()}
    assert len(digests.read((to / digests.NAME).read_bytes())) == len(found) - 1
    return found - {digests.NAME}


# The job


def test_the_job_has_its_streams_and_its_exit_code(run: Path, to: Path) -> None:
    command = export(run, to, "sh", "-c", "cat; echo told >&2; echo x > x; exit 7")
    done = subprocess.run(command, cwd=run, input=b"given", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (7, b"given")
    assert b"told\n" in done.stderr
    assert exported(to) == {"x"}


def test_a_job_that_a_signal_ends_gives_128_and_its_number(run: Path, to: Path) -> None:
    assert shell(run, to, "echo x > x; kill -KILL $$")[0] == 137
    assert exported(to) == {"x"}


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_a_signal_reaches_the_job_once_and_what_is_done_is_exported(
    run: Path, to: Path, name: str
) -> None:
    script = (
        "import os, signal, sys, time\n"
        "got = []\n"
        f"signal.signal(signal.SIG{name}, lambda n, _: got.append(n))\n"
        "open('early', 'w').close(); open('ready', 'w').close()\n"
        "while not got: time.sleep(0.01)\n"
        "end = time.monotonic() + 3\n"
        f"while time.monotonic() < end and not os.path.exists({str(to / 'early')!r}):\n"
        "    time.sleep(0.01)\n"
        f"sys.exit(40 + len(got) if os.path.exists({str(to / 'early')!r}) else 1)\n"
    )
    with start(export(run, to, sys.executable, "-c", script), cwd=run) as process:
        until((run / "ready").exists)
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.wait(20) == 41  # once; and exported while the job still ran
    assert exported(to) == {"early", "ready"}


def test_a_job_that_heeds_sigterm_ends_and_its_last_file_is_exported(run: Path, to: Path) -> None:
    script = "trap 'echo last > last; exit 9' TERM; : > ready; while :; do sleep 0.05; done"
    with start(export(run, to, "sh", "-c", script), cwd=run) as process:
        until((run / "ready").exists)
        process.terminate()
        assert process.wait(20) == 9
    assert exported(to) == {"ready", "last"}


def test_control_c_of_a_terminal_reaches_the_job_once(run: Path, to: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "got = []\n"
        "signal.signal(signal.SIGINT, lambda n, _: got.append(n))\n"
        "open('ready', 'w').close()\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "sys.exit(40 + len(got))\n"
    )
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(run)
        command = export(run, to, sys.executable, "-c", script)
        os.execve(command[0], command, environment())
    until((run / "ready").exists)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 41
    assert exported(to) == {"ready"}


def test_signals_that_were_ignored_stay_so_for_the_job(run: Path, to: Path) -> None:
    script = "kill -HUP $$; exit 5"
    nohup = ["nohup", *export(run, to, "sh", "-c", script)]
    done = subprocess.run(nohup, cwd=run, capture_output=True, timeout=30, check=False)
    assert done.returncode == 5


def test_a_second_signal_ends_the_last_export(run: Path, to: Path) -> None:
    # More than is hashed within seconds, and sparse: nobody has to write it.
    to.mkdir()
    for folder in (run, to):
        (folder / "big").touch()
        os.truncate(folder / "big", 60 << 30)
    with start(export(run, to, "sh", "-c", ": > ready"), cwd=run) as process:
        until((run / "ready").exists)
        time.sleep(1)
        process.terminate()
        time.sleep(2.5)
        assert process.poll() is None
        process.terminate()
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert b"error: big: the export was ended" in process.stderr.read()


def test_an_exporter_that_is_killed_leaves_the_job_alone(run: Path, to: Path) -> None:
    script = ": > ready; sleep 0.7; : > done"
    with start(export(run, to, "sh", "-c", script), cwd=run, stderr=None) as process:
        until((run / "ready").exists)
        process.kill()
        process.wait()
        until((run / "done").exists)


# What is exported, and when


def test_files_arrive_while_the_job_runs(run: Path, to: Path) -> None:
    script = f"echo 1 > one; while ! [ -e {to}/one ]; do sleep 0.05; done; echo 2 > two"
    code, said = shell(run, to, script, every="1s")
    assert code == 0
    assert exported(to) == {"one", "two"}
    assert said.count("1 file(s), 2 bytes") == 2


def test_what_is_open_or_named_as_unfinished_waits(run: Path, to: Path) -> None:
    script = (
        "exec 3> open; echo part >&3; echo w > w.tmp; echo d > done;"
        f"while ! [ -e {to}/done ]; do sleep 0.05; done; ls {to} > listed; sleep 0.1;"
        "echo more >&3; exec 3>&-; mv w.tmp w"
    )
    code, said = shell(run, to, script, every="1s")
    assert code == 0
    assert {"open", "w", "w.tmp"}.isdisjoint((run / "listed").read_text().split())
    assert "not finished yet: open" in said
    assert "its name says that it is not finished): w.tmp" in said
    assert exported(to) == {"open", "done", "w", "listed"}
    assert (to / "open").read_bytes() == b"part\nmore\n"


def test_links_and_special_files_are_named_and_left_out(run: Path, to: Path) -> None:
    code, said = shell(run, to, "ln -s /etc/passwd link; mkfifo pipe; echo x > x")
    assert code == 0
    assert "left out (a link): link" in said
    assert "left out (no regular file): pipe" in said
    assert exported(to) == {"x"}


def test_names_of_all_kinds_arrive(run: Path, to: Path) -> None:
    script = (
        "import os\n"
        "os.makedirs(b'a b/\\xff')\n"
        "for name in (b'new\\nline', b'back\\\\slash', b'-rf', b'a b/\\xff/\"x\"'):\n"
        "    open(name, 'wb').write(name)\n"
    )
    done = subprocess.run(
        export(run, to, sys.executable, "-c", script), cwd=run, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    check = ["sha256sum", "--strict", "--quiet", "--check", digests.NAME]
    subprocess.run(check, cwd=to, check=True)
    for name in (b"new\nline", b"back\\slash", b"-rf", b'a b/\xff/"x"'):
        assert (to / os.fsdecode(name)).read_bytes() == name


def test_ten_thousand_small_files(run: Path, to: Path) -> None:
    for number in range(10_000):
        folder = run / str(number // 1000)
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_bytes(str(number).encode())
    code, said = shell(run, to, "true")
    assert code == 0
    # Bytes: 10 of one digit, 90 of two, 900 of three, 9000 of four.
    assert "10000 file(s), 38890 bytes" in said
    assert len(exported(to)) == 10_000
    assert (to / "7" / "7123").read_bytes() == b"7123"


def test_times_from_any_clock_are_no_matter(run: Path, to: Path) -> None:
    script = (
        "echo one > x; touch -d 2090-01-01 x;"
        f"while ! [ -e {to}/x ]; do sleep 0.05; done;"
        "echo two > x; touch -d 1980-01-01 x; echo old > y; touch -d 1971-01-01 y"
    )
    assert shell(run, to, script, every="1s")[0] == 0
    assert (to / "x").read_bytes() == b"two\n"
    assert exported(to) == {"x", "y"}


def test_killed_in_the_middle_it_goes_on_and_no_half_file_has_a_name(run: Path, to: Path) -> None:
    pieces = [hashlib.sha256(str(n).encode()).digest() * 4096 for n in range(128)]
    for number in range(24):
        (run / f"{number:02}").write_bytes(b"".join(pieces[number:] + pieces[:number]))
    with start(export(run, to, "true"), cwd=run, stderr=None) as process:
        until((to / "03").exists)
        process.kill()
        process.wait()
    whole = {p.name for p in to.iterdir() if p.is_file()}
    assert len(whole) < 24
    for name in whole:
        assert (to / name).read_bytes() == (run / name).read_bytes()
    kept = {name: (to / name).stat().st_ino for name in whole}
    code, said = shell(run, to, "true")
    assert code == 0, said
    assert f"{24 - len(whole)} file(s)" in said
    assert {name: (to / name).stat().st_ino for name in whole} == kept
    assert exported(to) == {f"{number:02}" for number in range(24)}


# What goes wrong does so beside the job


def mounted(to: Path, size: str, command: list[str], cwd: Path) -> tuple[int, str]:
    """Run a command with a small file system at `to`; what is there in the end is kept below it."""
    to.mkdir()
    kept = to.with_name("kept")
    script = (
        f'mount -t tmpfs -o size={size} tmpfs "$0" && "$@"; code=$?;cp -a "$0" {kept}; exit $code'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, to, *command],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@ROOT
@pytest.mark.parametrize(("ends", "code"), [("exit 0", 1), ("exit 6", 6)])
def test_a_full_disk_is_told_and_counted_and_small_files_still_arrive(
    run: Path, to: Path, ends: str, code: int
) -> None:
    script = f"head -c 3000000 /dev/urandom > big; echo x > small; {ends}"
    found, said = mounted(to, "1m", export(run, to, "sh", "-c", script), run)
    assert found == code
    assert "error: big: No space left on device" in said
    assert exported(to.with_name("kept")) == {"small"}


FILLS = """
import json, os, sys
from envcheck.exporting.folder import Folder
from envcheck.exporting.looking import look

run, to = sys.argv[1:]
target = Folder(to)
target.prepare()

def fill():
    if not os.path.exists(f"{to}/other"):
        with open(f"{to}/other", "wb") as file:
            file.write(bytes(5 << 19))
    return False

found = target.deliver(run, look(run, ()).files, fill)
print(json.dumps([found.failed, list(found.arrived), sorted(os.listdir(to)),
                  os.listdir(f"{to}/.envcheck-export")]))
"""


@ROOT
def test_a_disk_that_somebody_fills_while_a_file_is_written(run: Path, to: Path) -> None:
    # 3 MiB of room, of which the file needs 2 and somebody else takes 2.5 after its first one.
    (run / "big").write_bytes(os.urandom(2 << 20))
    (run / "small").write_bytes(b"1")
    mount = 'mount -t tmpfs -o size=3m tmpfs "$5" && "$@"'
    to.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh",
         sys.executable, "-c", FILLS, run, to],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    failed, arrived, there, aside = json.loads(done.stdout)
    assert failed == {"big": "No space left on device"}
    assert arrived == ["small"]
    assert there == [".envcheck-export", digests.NAME, "other", "small"]
    assert aside == []


def test_a_target_that_vanishes_harms_no_job_and_is_found_again(run: Path, to: Path) -> None:
    away = to.with_name("away")
    script = f"echo 1 > one; while ! [ -e {to}/one ]; do sleep 0.05; done; mv {to} {away}; "
    code, said = shell(run, to, f"{script} sleep 2; exit 0", every="1s")
    assert code == 1
    assert f"error: {to} is gone" in said
    assert not to.exists()
    away.rename(to)
    code, said = shell(run, to, "exit 0")
    assert code == 0
    assert exported(to) == {"one"}


def test_a_vanished_target_does_not_change_the_code_of_a_job_that_failed(
    run: Path, to: Path
) -> None:
    code, said = shell(run, to, f"mv {to} {to}.away; exit 4")
    assert code == 4
    assert "is gone" in said


def test_an_unreadable_file_is_told_and_the_rest_arrives(run: Path, to: Path) -> None:
    command = export(run, to, "sh", "-c", "echo x > x; echo y > y; chmod 0 x")
    if os.geteuid() == 0:
        # Root reads everything unless this right is taken from it.
        if shutil.which("setpriv") is None:
            pytest.skip("no setpriv to take root's rights away")
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *command]
    done = subprocess.run(command, cwd=run, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: x: Permission denied" in done.stderr
    assert exported(to) == {"y"}


def test_results_that_vanish_are_told(run: Path, to: Path) -> None:
    code, said = shell(run, to, "cd /; rm -r $OLDPWD")
    assert code == 1
    assert f"error: {run}: FileNotFoundError" in said


def test_what_is_still_written_to_when_the_job_has_ended_is_a_failure(run: Path, to: Path) -> None:
    script = "(exec 3> open; : > ready; sleep 3) & while ! [ -e ready ]; do sleep 0.05; done"
    code, said = shell(run, to, script)
    assert code == 1
    assert "error: open: it is still written to" in said
    assert exported(to) == {"ready"}


def test_nobody_who_reads_stderr_is_no_failure(run: Path, to: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    script = f"echo 1 > one; while ! [ -e {to}/one ]; do sleep 0.05; done; echo 2 > two"
    command = export(run, to, "sh", "-c", script, every="1s")
    done = subprocess.run(command, cwd=run, stderr=writing, timeout=30, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert exported(to) == {"one", "two"}


# What is refused before the job is started


@pytest.mark.parametrize("every", ["0s", "0.5s", "never", "-1s"])
def test_less_than_a_second_is_refused(run: Path, to: Path, every: str) -> None:
    done = envcheck("export", f"--every={every}", "--from", run, "--to", to, "--", "true")
    assert done.returncode == 2
    assert "of 1s at least" in done.stderr


@pytest.mark.parametrize("place", ["run", "run/inside", "."])
def test_a_target_in_the_results_or_around_them_is_refused(
    run: Path, tmp_path: Path, place: str
) -> None:
    code, said = shell(run, tmp_path / place, f"touch {tmp_path}/started")
    assert code == 2
    assert "would be exported itself" in said
    assert not (tmp_path / "started").exists()


def test_a_folder_or_a_command_that_is_not_there(run: Path, to: Path, tmp_path: Path) -> None:
    done = envcheck("export", "--every=1s", "--from", tmp_path / "no", "--to", to, "--", "true")
    assert (done.returncode, to.exists()) == (3, False)
    assert "mkdir -p" in done.stderr
    done = envcheck("export", "--every=1s", "--from", run, "--to", to, "--", "no-such-command")
    assert (done.returncode, to.exists()) == (3, False)


def test_rsync_that_is_not_there_is_told_before_the_job(run: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    touch = shutil.which("touch")
    assert touch is not None
    command = ("export", "--every=1s", "--from", run, "--to", "host:results", "--", touch)
    done = envcheck(*command, tmp_path / "started", env={"PATH": str(tmp_path / "bin")})
    assert done.returncode == 3
    assert "rsync is not installed here" in done.stderr
    assert not (tmp_path / "started").exists()
