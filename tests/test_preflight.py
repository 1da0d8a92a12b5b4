"""`envcheck preflight` as its users run it, on a rental of our own (tests/fake_rental.py)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import old_nvml
from fake_rental import SECOND, UUID, Rental, library, rental
from running import COMMAND, envcheck, environment, on_terminal

__all__ = ["library", "old_nvml", "rental"]

STEPS = ["driver", "host", "cards", "card", "between cards", "environment", "after"]
NAME = "card 0 (NVIDIA GeForce RTX 4090)"
PAIR = {"FAKE_COUNT": 2, "nvmlDeviceGetCount_v2": 2}


def look(rental: Rental, *words: str | Path, **told: str | int) -> subprocess.CompletedProcess[str]:
    """Run a whole preflight, a quick one; `told` is what is wrong with the machine."""
    command = ("preflight", "--quick", "--python", rental.python, *words)
    return envcheck(*command, env=rental.environment(**told))


def steps(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    """Return (status, step) of each line of progress."""
    names = "|".join(sorted(STEPS, key=len, reverse=True))
    line = re.compile(rf"envcheck: (\w*) +({names})  ")
    return [(m[1], m[2]) for text in done.stderr.splitlines() if (m := line.match(text))]


def last(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[-1]


def is_kept(done: subprocess.CompletedProcess[str]) -> bool:
    """Say whether nothing is reserved but that the host of these tests has much to do."""
    word, _, facts = last(done).partition(": ")
    busy = re.fullmatch(r"host: \d+ processes run or wait on the host's \d+ processors", facts)
    return done.returncode == 0 and (word == "keep" or busy is not None)


def test_a_healthy_card_is_kept(rental: Rental, tmp_path: Path) -> None:
    """Everything that was rented is there, so there is nothing to reserve."""
    wanted = ("--expect", "rtx-4090", "--gpus", "1", "--disk", "1MB", "--shm", "16MB")
    done = look(rental, *wanted, "--workers", "1", "--data", tmp_path)
    assert is_kept(done), done.stdout + done.stderr
    assert [step for _, step in steps(done)] == STEPS
    assert {status for status, step in steps(done) if step != "host"} <= {"pass", "skip", ""}
    assert ("skip", "between cards") in steps(done)
    assert not list(tmp_path.iterdir())


def test_two_healthy_cards_are_kept(rental: Rental) -> None:
    done = look(rental, "--gpus", "2", **PAIR)
    assert is_kept(done), done.stdout
    assert ("pass", "between cards") in steps(done)


@pytest.mark.parametrize(
    ("told", "words", "begun", "said"),
    [
        ({}, ("--expect", "rtx-5090"), 1, "it is sm_89, rtx-5090 is sm_120"),
        ({}, ("--gpus", "2"), 1, "1 card(s) are shown, 2 are wanted"),
        ({}, ("--disk", "9000TB"), 2, "that were asked for"),
        ({}, ("--shm", "9000TB"), 2, "that were asked for"),
        ({"FAKE_STUCK": "2000000:3"}, (), 4, "does not hold what is written"),
        ({"FAKE_RATE": 300}, (), 4, "300 GB/s, 30% of the maker's 1008"),
        ({"FAKE_LINK_RATE": 1}, (), 4, "3% of the 31.5 that NVML says it can carry"),
        ({"FAKE_CRASH": "verify"}, (), 4, "killed by SIGABRT"),
        ({"FAKE_ECC": 2}, (), 4, "CUDA_ERROR_ECC_UNCORRECTABLE (214)"),
        ({"nvmlInitWithFlags": "crash"}, (), 3, "NVML gives no answer: killed by SIGABRT"),
        ({**PAIR, "FAKE_DIRECT": "zeros"}, (), 5, "card"),
    ],
)
def test_a_machine_that_is_unfit_goes_back_at_once(
    rental: Rental, told: dict[str, Any], words: tuple[str, ...], begun: int, said: str
) -> None:
    done = look(rental, *words, **told)
    assert done.returncode == 10, done.stdout + done.stderr
    assert last(done).startswith("give back: ")
    assert said in last(done)
    taken = [step for status, step in steps(done) if status != "skip"]
    assert taken[: len(taken) - 1] == [step for step in STEPS[:begun] if step in taken]
    assert (STEPS[begun - 1], taken[-1]) == (taken[-2], "after")
    # Each step that was left says why.
    assert all("because" in text for text in done.stderr.splitlines() if " skip " in text) or (
        "there are not two cards" in done.stderr
    )


def test_keep_going_looks_at_the_rest(rental: Rental) -> None:
    done = look(rental, "--keep-going", FAKE_RATE=300)
    assert (done.returncode, last(done).partition(":")[0]) == (10, "give back")
    assert {step for status, step in steps(done) if status == "skip"} == {"between cards"}


def test_a_card_that_is_lost_while_the_cards_work(rental: Rental) -> None:
    """The second of two answers NVML twice, and is lost from then on."""
    done = look(rental, nvmlDeviceGetUtilizationRates_1="90;90;!15", **PAIR)
    assert last(done).startswith("give back: "), done.stdout
    assert "card 1 (NVIDIA GeForce RTX 4090): it has fallen off the bus" in last(done)


def test_nvml_that_hangs_while_the_card_works_is_a_reservation(rental: Rental) -> None:
    done = look(rental, nvmlDeviceGetUtilizationRates="hang")
    assert done.returncode == 0, done.stderr
    assert last(done).startswith("keep with reservations: ")
    assert "NVML gave no answer while the cards worked" in last(done)


def test_without_a_card_the_machine_goes_back_and_nothing_is_taken(rental: Rental) -> None:
    done = look(rental, FAKE_INIT=100)
    assert (done.returncode, done.stdout) == (3, "")
    assert "give back: " in done.stderr
    named = look(rental, "--expect", "rtx-4090", FAKE_INIT=100)
    assert (named.returncode, last(named).partition(":")[0]) == (10, "give back")


def test_documents_say_what_the_text_says(rental: Rental, report_schema: dict[str, Any]) -> None:
    import jsonschema

    done = look(rental, "--format", "json", FAKE_RATE=300)
    report = json.loads(done.stdout)
    jsonschema.validate(report, report_schema)
    decision = report["summary"]["decision"]
    assert (done.returncode, report["verdict"]) == (10, "incompatible")
    assert decision["word"] == "give back"
    assert decision["facts"][0] == f"{NAME}: 300 GB/s, 30% of the maker's 1008"
    marked = look(rental, "--format", "markdown", FAKE_RATE=300)
    assert marked.returncode == 10
    assert "give back" in marked.stdout


def test_the_manifest_serves_all_that_follows(rental: Rental, tmp_path: Path) -> None:
    key, manifest, facts = (tmp_path / n for n in ("key.pem", "manifest.json", "facts.json"))
    assert envcheck("keygen", "-q", "-o", key).returncode == 0
    kept = ("--sign", key, "-o", manifest, "--save-inventory", facts)
    done = look(rental, "--format", "json", *kept)
    assert done.returncode == 0, done.stderr
    here = rental.environment()
    signed = envcheck("verify", manifest, "--key", key.with_suffix(".pub"))
    assert (signed.returncode, "compatible with ada" in signed.stdout) == (0, True)
    driver = json.loads(done.stdout)["driver"]
    words = ("--format", "json", "--arch", "native", *(("--driver", driver) if driver else ()))
    again = envcheck("judge", facts, *words, env=here)
    assert json.loads(again.stdout) == json.loads(done.stdout)
    gate = ("guard", "--manifest", manifest, "--key", key.with_suffix(".pub"), "--")
    job = (rental.python, "-c", "print('started')")
    assert envcheck(*gate, *job, env=here).stdout == "started\n"
    for changed, said in (
        ({"FAKE_NAME": "NVIDIA L40S"}, f"another card: {NAME[8:-1]} (sm_89) in the manifest"),
        ({"FAKE_FIRST": 1}, f"another {NAME[8:-1]}: {UUID} in the manifest, {SECOND} here"),
        ({"FAKE_COUNT": 2}, f"another {NAME[8:-1]}: {UUID} in the manifest, {SECOND} here"),
        ({"FAKE_INIT": 100}, "here is none to use"),
    ):
        refused = envcheck(*gate, *job, env=rental.environment(**changed))
        assert (refused.returncode, "started" in refused.stdout) == (12, False)
        assert said in refused.stderr


def test_a_job_may_see_fewer_cards_than_were_looked_at(rental: Rental, tmp_path: Path) -> None:
    key, manifest = tmp_path / "key.pem", tmp_path / "manifest.json"
    assert envcheck("keygen", "-q", "-o", key).returncode == 0
    assert look(rental, "--sign", key, "-o", manifest, **PAIR).returncode == 0
    gate = ("guard", "--manifest", manifest, "--key", key.with_suffix(".pub"), "--")
    for first in (0, 1):
        words = (*gate, rental.python, "-c", "print('started')")
        done = envcheck(*words, env=rental.environment(FAKE_FIRST=first))
        assert (done.returncode, done.stdout) == (0, "started\n")


def test_a_manifest_of_a_machine_to_give_back_starts_nothing(
    rental: Rental, tmp_path: Path
) -> None:
    """It is about the environment, which is not looked at where the machine is known to be unfit."""
    key, manifest = tmp_path / "key.pem", tmp_path / "manifest.json"
    assert envcheck("keygen", "-q", "-o", key).returncode == 0
    signed = ("--sign", key, "-o", manifest)
    stopped = look(rental, *signed, FAKE_RATE=300)
    assert (stopped.returncode, last(stopped).partition(":")[0]) == (10, "give back")
    assert ("was not written" in stopped.stderr, manifest.exists()) == (True, False)
    assert look(rental, *signed, "--keep-going", FAKE_RATE=300).returncode == 10
    public = key.with_suffix(".pub")
    assert envcheck("verify", manifest, "--key", public).returncode == 0
    gate = ("guard", "--manifest", manifest, "--key", public, "--", rental.python, "-c", "1")
    refused = envcheck(*gate, env=rental.environment())
    assert refused.returncode == 10
    assert "300 GB/s, 30% of the maker's 1008" in refused.stderr


def dying(folder: Path, rental: Rental) -> Path:
    """Write an interpreter that says its version and then ends before it looks at anything."""
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -EsSc ] && exec {rental.python} "$@"\necho gone >&2\nexit 9\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_what_is_known_of_the_machine_outlives_an_environment_that_does_not_answer(
    rental: Rental, tmp_path: Path
) -> None:
    done = look(rental, "--python", dying(tmp_path, rental))
    assert done.returncode == 11, done.stdout + done.stderr
    assert [step for _, step in steps(done)] == STEPS
    assert last(done).startswith("keep with reservations: environment: ")
    assert "gone" in last(done)
    sick = look(rental, "--python", dying(tmp_path, rental), "--keep-going", FAKE_RATE=300)
    assert (sick.returncode, last(sick).partition(":")[0]) == (10, "give back")


@pytest.mark.parametrize("words", [("--python", "/nonexistent"), ("--python", "/")])
def test_an_interpreter_that_is_none_costs_no_minute(
    rental: Rental, words: tuple[str, ...]
) -> None:
    done = look(rental, *words)
    assert (done.returncode, done.stdout, steps(done)) == (3, "", [])


def test_a_file_that_cannot_be_written_does_not_cost_the_answer(rental: Rental) -> None:
    done = look(rental, "--save-inventory", "/dev/full")
    assert done.returncode == 3
    assert "/dev/full: cannot be written" in done.stderr
    assert last(done).startswith("keep")


def test_a_folder_for_data_that_is_none_is_no_fault_of_the_machine(
    rental: Rental, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = look(rental, "--data", tmp_path / "file")
    assert done.returncode == 10
    assert last(done).startswith("keep with reservations: ")
    assert f"{tmp_path}/file: is no folder" in last(done)
    later = look(rental, "--data", tmp_path / "not" / "yet")
    assert is_kept(later), later.stdout


UNKNOWN = {
    "FAKE_NAME": "NVIDIA Ümläut ☃ 9999",
    "nvmlDeviceGetName": "NVIDIA Ümläut ☃ 9999",
    "FAKE_SM": 127,
    "nvmlDeviceGetCudaComputeCapability": "12,7",
}


def test_a_card_that_nobody_knows_is_judged_by_what_it_does(rental: Rental) -> None:
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = look(rental, **UNKNOWN, **plain)
    assert done.returncode == 0, done.stdout + done.stderr
    assert is_kept(done), done.stdout
    assert "\\u2603 9999): 0.0 of" in done.stderr
    assert "☃ 9999): 0.0 of" in look(rental, **UNKNOWN, LC_ALL="C.UTF-8").stderr
    verbose = look(rental, "-v", **UNKNOWN).stdout
    assert "no number of the maker's is known to compare with" in verbose


def test_an_older_nvml_is_no_fault(rental: Rental, old_nvml: Path) -> None:
    both = f"{old_nvml}:{rental.libraries}"
    done = look(rental, LD_LIBRARY_PATH=both)
    assert is_kept(done), done.stdout


def test_a_newer_nvml_that_refuses_the_size_of_a_struct(rental: Rental) -> None:
    done = look(rental, nvmlDeviceGetMemoryInfo_v2="!25")
    assert is_kept(done), done.stdout


def test_bare_variables_and_closed_streams(rental: Rental) -> None:
    """A job of cron has neither HOME nor PATH, and may have no stdin."""
    bare = {k: v for k, v in rental.environment().items() if k not in ("HOME", "PATH", "TMPDIR")}
    words = [*COMMAND, "preflight", "--quick", "--python", str(rental.python)]
    shell = ["/bin/sh", "-c", 'exec "$@" <&- 2>&-', "sh", *words]
    done = subprocess.run(
        shell, env=bare, stdout=subprocess.PIPE, encoding="utf-8", timeout=120, check=False
    )
    assert is_kept(done), done.stdout


def test_progress_that_nobody_reads_any_more_does_not_end_it(
    rental: Rental, tmp_path: Path
) -> None:
    heard, told = os.pipe()
    os.close(heard)
    words = ["preflight", "--quick", "--python", rental.python]
    with subprocess.Popen(
        [*COMMAND, *map(str, [*words, "--save-inventory", tmp_path / "facts.json"])],
        env=environment(rental.environment()),
        stdout=subprocess.PIPE,
        stderr=told,
        encoding="utf-8",
    ) as process:
        os.close(told)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert said.splitlines()[-1].startswith("keep")
    assert (tmp_path / "facts.json").exists()


def of_mark(mark: str) -> list[str]:
    """Return the processes that have it among their variables."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is a zombie
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
    return found


def _heeding() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("after", [0.4, "host", "cards", "card", "environment"])
def test_killed_in_the_middle_it_leaves_nothing(
    rental: Rental, tmp_path: Path, number: signal.Signals, after: float | str
) -> None:
    """A moment is a time, or the step that was over last."""
    data, temporary, key = tmp_path / "data", tmp_path / "tmp", tmp_path / "key.pem"
    data.mkdir()
    temporary.mkdir()
    assert envcheck("keygen", "-q", "-o", key).returncode == 0
    mark = f"ENVCHECK_TEST_MARK={tmp_path.name}-{number}-{after}"
    variables = rental.environment(TMPDIR=str(temporary))
    variables |= dict([mark.split("=")])
    words = ["preflight", "--quick", "--python", rental.python, "--data", data]
    shared = set(os.listdir("/dev/shm"))
    with subprocess.Popen(
        [*COMMAND, *map(str, [*words, "--sign", key, "-o", tmp_path / "manifest.json"])],
        env={**environment(), **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        # Whoever runs the tests in the background may have these ignored.
        preexec_fn=_heeding,  # noqa: PLW1509 - the tests have no threads
    ) as process:
        assert process.stderr is not None
        if isinstance(after, float):
            time.sleep(after)
        else:
            while not re.match(rf"envcheck: \w+ +{after} ", line := process.stderr.readline()):
                assert line, "it ended before"
        process.send_signal(number)
        process.stderr.read()
        code = process.wait(timeout=60)
    assert code in ({-9} if number is signal.SIGKILL else {128 + number, -number, 0})
    until = time.monotonic() + 10
    while of_mark(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not of_mark(mark)
    assert not list(data.iterdir())
    assert set(os.listdir("/dev/shm")) <= shared
    if number is not signal.SIGKILL:
        assert not list(temporary.iterdir())
    manifest = tmp_path / "manifest.json"
    assert not list(tmp_path.glob(".envcheck-*"))
    if manifest.exists():
        assert envcheck("verify", manifest, "--key", key.with_suffix(".pub")).returncode == 0


@pytest.mark.parametrize("mount", ["-o size=1m", "-o ro"])
def test_a_disk_that_takes_no_data(rental: Rental, tmp_path: Path, mount: str) -> None:
    if os.geteuid():
        pytest.skip("only root may mount")
    program = f'mount -t tmpfs {mount} none {tmp_path} && exec "$@" --data {tmp_path}'
    words = [*COMMAND, "preflight", "--quick", "--python", str(rental.python)]
    done = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", program, "sh", *words],
        env=environment(rental.environment()),
        capture_output=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("nothing can be mounted here")
    why = "on a full disk" if "size" in mount else "read-only file system"
    assert (done.returncode, last(done).partition(":")[0]) == (10, "give back"), done.stderr
    assert why in last(done)


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_on_a_terminal(rental: Rental, columns: int) -> None:
    words = ("preflight", "--quick", "--python", rental.python)
    code, written = on_terminal(*words, columns=columns, env=rental.environment())
    assert code == 0
    assert all(step in written for step in STEPS)
    assert "\x1b[" in written
    plain = rental.environment(NO_COLOR=1)
    _, without = on_terminal(*words, columns=columns, env=plain)
    assert not re.search(r"\x1b\[[0-9;]*3[1-7]m", without)
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", without).rstrip().splitlines()[-1]
