"""What a trial reports of work that ends in every way a process can end."""

# ruff: noqa: T201 - what trials print is what is tested

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from envcheck.core import codec
from envcheck.core.compiled import Outcome
from envcheck.guest import trial

ROOT = Path(__file__).parents[2]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


def sleep_in_background(pidfile: Path, *, session: bool) -> None:
    """Leave a process behind, as a daemon or a compiler that forks would."""
    if os.fork() == 0:
        if session:
            os.setsid()
        if os.fork() == 0:
            pidfile.write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)


def test_work_returns_its_value_and_the_parent_is_untouched():
    numbers = []

    def work():
        numbers.append(1)
        return {"sum": 2 + 3, "list": [1, None, "x"]}

    result = trial.run(work, deadline=10)
    assert result.outcome.status == "ok"
    assert result.outcome.ok
    assert result.value == {"sum": 5, "list": [1, None, "x"]}
    assert numbers == []


def test_an_exception_is_named_with_its_text_and_its_place():
    def work():
        message = "no such op"
        raise LookupError(message)

    result = trial.run(work, deadline=10)
    assert (result.outcome.status, result.outcome.error) == ("raised", "LookupError: no such op")
    assert any("in work" in line for line in result.outcome.stderr)
    assert result.value is None


def test_a_base_exception_and_an_unwritable_value_are_raised_too():
    def interrupted():
        raise KeyboardInterrupt

    assert trial.run(interrupted, deadline=10).outcome.error == "KeyboardInterrupt: "
    for value in (object(), float("nan")):
        outcome = trial.run(lambda value=value: value, deadline=10).outcome
        assert outcome.status == "raised"
        assert outcome.error is not None
        assert outcome.error.startswith(("TypeError", "ValueError"))


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_is_named_by_its_signal(number):
    outcome = trial.run(lambda: os.kill(os.getpid(), number), deadline=10).outcome
    assert (outcome.status, outcome.signal) == ("crashed", number.name)


def test_a_segmentation_fault_leaves_the_python_stack():
    def crashing_function():
        ctypes.c_int.from_address(8).value = 1

    outcome = trial.run(crashing_function, deadline=10).outcome
    assert outcome.signal == "SIGSEGV"
    assert any("crashing_function" in line for line in outcome.stderr)
    assert not any("run_all" in line for line in outcome.stderr), outcome.stderr


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda: sys.exit(3), 3),
        (lambda: sys.exit("text"), 1),
        (sys.exit, 0),
        (lambda: os._exit(7), 7),
        (lambda: ctypes.CDLL(None).exit(1), 1),
        (lambda: ctypes.CDLL(None).exit(0), 0),
    ],
)
def test_exit_is_not_success_whatever_the_code(leave, code):
    outcome = trial.run(leave, deadline=10).outcome
    assert (outcome.status, outcome.code) == ("exited", code)


def test_a_late_child_is_killed_at_its_deadline():
    began = time.monotonic()
    outcome = trial.run(lambda: time.sleep(600), deadline=0.3).outcome
    assert outcome.status == "timed-out"
    assert 0.3 <= time.monotonic() - began < 3
    assert 300 <= outcome.milliseconds < 3000


def test_a_late_child_that_ignores_signals_is_killed_too():
    def stubborn():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(1)

    assert trial.run(stubborn, deadline=0.3).outcome.status == "timed-out"


def test_standard_output_is_evidence_and_not_the_answer():
    def work():
        print(json.dumps({"value": "forged"}))
        os.write(2, b"C speaks \xff\n")
        ctypes.CDLL(None).puts(b"buffered by C")
        return "true"

    result = trial.run(work, deadline=10)
    assert result.value == "true"
    assert result.outcome.stdout == ('{"value": "forged"}', "buffered by C")
    assert result.outcome.stderr == ("C speaks \\xff",)


def test_endless_output_is_cut_to_its_first_and_last_lines():
    def work():
        for number in range(200_000):
            print(f"line {number}")
        print("x" * 100_000)
        os.abort()

    outcome = trial.run(work, deadline=60).outcome
    assert outcome.signal == "SIGABRT"
    assert outcome.stdout[:2] == ("line 0", "line 1")
    assert outcome.stdout[10] == "..."
    assert sum(map(len, outcome.stdout)) < 20_000
    few = trial.run(lambda: [print(n) for n in range(40)] and None, deadline=10).outcome.stdout
    assert few == (*map(str, range(10)), "...", *map(str, range(20, 40)))


def test_lines_that_repeat_are_told_once_and_counted():
    def work():
        print("same\n" * 50 + "other\nsame")

    lines = trial.run(work, deadline=10).outcome.stdout
    assert lines == ("same", "... (49 more)", "other", "same")


def test_standard_input_is_empty():
    assert trial.run(lambda: sys.stdin.read() + str(os.read(0, 1)), deadline=10).value == "b''"


def test_memory_is_bounded_and_the_parent_is_not():
    def work():
        return len(bytearray(1 << 30))

    assert trial.run(work, deadline=30, memory=1 << 28).outcome.error == "MemoryError: "
    assert len(bytearray(1 << 28)) == 1 << 28


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("end", ["returns", "crashes", "hangs"])
def test_nothing_that_descends_from_a_trial_stays(tmp_path, session, end):
    pidfile = tmp_path / "pid"

    def work():
        sleep_in_background(pidfile, session=session)
        while not pidfile.exists() or not pidfile.read_text():
            time.sleep(0.01)
        if end == "crashes":
            os.abort()
        if end == "hangs":
            time.sleep(600)

    trial.run(work, deadline=1.0 if end == "hangs" else 30)
    assert not alive(int(pidfile.read_text()))


def test_a_child_of_the_parent_that_is_no_trial_lives_on():
    with subprocess.Popen(["sleep", "600"]) as stranger:
        trial.run(lambda: None, deadline=10)
        assert stranger.poll() is None
        stranger.kill()


def test_many_run_side_by_side_and_answer_in_order(tmp_path):
    def work(number):
        (tmp_path / str(number)).touch()
        while len(list(tmp_path.iterdir())) < 4:  # none ends before four have begun
            time.sleep(0.01)
        time.sleep(0.1 if number % 2 else 0)
        if number == 5:
            os.abort()
        return number

    results = trial.run_all([lambda n=n: work(n) for n in range(8)], deadline=20, parallel=4)
    assert [r.value for r in results] == [0, 1, 2, 3, 4, None, 6, 7]
    assert results[5].outcome.signal == "SIGABRT"


def test_a_trial_may_run_trials():
    def outer():
        results = trial.run_all([lambda: 1, os.abort, lambda: 3], deadline=10, parallel=2)
        return [r.value for r in results]

    assert trial.run(outer, deadline=20).value == [1, None, 3]


def test_another_program_is_judged_by_its_exit_code():
    script = "import sys; print('seen', *sys.argv[1:]); sys.exit(4)"
    outcome = trial.run(trial.program([sys.executable, "-c", script, "x"]), deadline=20).outcome
    assert (outcome.status, outcome.code, outcome.stdout) == ("exited", 4, ("seen x",))
    missing = trial.run(trial.program(["/nonexistent/ptxas"]), deadline=10).outcome
    assert missing.status == "raised"
    assert missing.error is not None
    assert missing.error.startswith("FileNotFoundError")


def test_work_from_a_parent_with_threads():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert trial.run(lambda: "alone", deadline=10).value == "alone"
    finally:
        stop.set()
        thread.join()


INTERRUPTED = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from envcheck.guest import trial

def work():
    if os.fork() == 0:
        os.setsid()
    open(os.path.join(sys.argv[2], str(os.getpid())), "w").close()
    time.sleep(600)

trial.run_all([work, work], deadline=600, parallel=2)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_an_interrupted_parent(tmp_path, number):
    parent = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(ROOT), str(tmp_path)], stderr=subprocess.PIPE
    )
    try:
        assert wait_until(lambda: len(os.listdir(tmp_path)) == 4, 20)
        pids = [int(name) for name in os.listdir(tmp_path)]
        parent.send_signal(number)
        parent.communicate(timeout=20)
        assert parent.returncode in (-number, 1)
        # Only a parent that may still act can reach those that left their trial's session.
        expected = 4 if number == signal.SIGINT else 2
        assert wait_until(lambda: sum(not alive(p) for p in pids) >= expected)
    finally:
        for name in os.listdir(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGKILL)


def test_an_outcome_survives_the_documents():
    outcome = trial.run(os.abort, deadline=10).outcome
    assert codec.loads(Outcome, codec.dumps(outcome), name="outcome") == outcome


def test_what_is_done_meanwhile_starts_after_the_fork():
    done = []
    aside = threading.Thread(target=lambda: done.append(os.getpid()))
    work = lambda: [threading.active_count(), time.sleep(0.2), len(done)]  # noqa: E731
    assert trial.run(work, deadline=10, meanwhile=aside).value == [1, None, 0]
    aside.join()
    assert done == [os.getpid()]


def test_what_goes_on_aside_survives_the_trials_beside_it(tmp_path):
    """Trials kill what they left behind, and must not take it for something of theirs."""

    def work():
        time.sleep(1)
        (tmp_path / "done").write_text("yes")
        return 5

    aside = trial.Aside(work, deadline=30)
    beside = trial.run(lambda: 7, deadline=10)
    ended = aside.wait(20)
    assert (beside.value, ended.value, ended.outcome.status) == (7, 5, "ok")
    assert (tmp_path / "done").read_text() == "yes"


def test_what_goes_on_aside_ends_when_there_is_no_time_left():
    aside = trial.Aside(lambda: time.sleep(60), deadline=60)
    started = time.monotonic()
    assert aside.wait(0.2).outcome.status == "timed-out"
    assert time.monotonic() - started < 10


def test_an_answer_needs_no_folder_that_takes_a_file(monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no-such-folder")
    with pytest.raises(OSError, match="No such file"), tempfile.TemporaryFile():
        pass
    assert trial.run(lambda: {"a": 1}, deadline=20).value == {"a": 1}
