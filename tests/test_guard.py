"""The gate as a job sees it: the same process goes on, or nothing is started and it is said why."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from building import site, venv, wheel
from fake_driver import words as driver_words
from guarding import Change, Signed, sign_environment, wheels, with_report
from running import COMMAND, envcheck, environment

import envcheck as package
from envcheck import gate, policy, same, targets
from envcheck.core.cards import Cards
from envcheck.core.compiled import Outcome
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.executed import Card, Executed
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Assurance, Status, Target
from envcheck.core.present import OnlyCard, Present, PresentRequest
from envcheck.engine import job
from envcheck.engine.present import Looking
from envcheck.errors import JobRefused, UsageError

STARTED = "the job was started"
JOB = ("-c", f"print({STARTED!r})")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return sign_environment(tmp_path_factory.mktemp("guard"))


def gated(
    signed: Signed, *options: str | Path, words: Sequence[str | Path] = (), **more: object
) -> subprocess.CompletedProcess[str]:
    """Run a job behind the gate; `words` instead of one that says that it was started."""
    given = ("--manifest", signed.manifest, "--key", signed.public)
    return envcheck("guard", *given, *options, "--", *(words or (signed.python, *JOB)), **more)


def refused(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    """Check that nothing was started, and that the difference is named in one line."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    error = next(line for line in done.stderr.splitlines() if "error: " in line)
    assert [text for text in said if text not in error] == [], error


# What is started


def test_the_job_is_the_same_process_with_its_stdin_and_its_exit_code(signed: Signed) -> None:
    code = "import os, sys; print(os.getpid(), sys.argv[1:], sys.stdin.read()); sys.exit(7)"
    given = ["guard", "--manifest", signed.manifest, "--key", signed.public, "--"]
    words = [*COMMAND, *given, signed.python, "-c", code, "a", "--", "--deep"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        out, _ = process.communicate("data", timeout=60)
    assert out == f"{process.pid} ['a', '--', '--deep'] data\n"
    assert process.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_job(signed: Signed, number: signal.Signals) -> None:
    given = ["guard", "--manifest", signed.manifest, "--key", signed.public, "--python"]
    words = [*COMMAND, *given, signed.python, "--", "sleep", "60"]
    with subprocess.Popen(words, env=environment(), stderr=subprocess.DEVNULL) as process:
        comm, end = Path(f"/proc/{process.pid}/comm"), time.monotonic() + 60
        while comm.read_text() != "sleep\n" and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(timeout=30) == -number


def test_signals_that_python_ignores_are_not_ignored_in_the_job(signed: Signed) -> None:
    for name, number in (("PIPE", signal.SIGPIPE), ("XFSZ", signal.SIGXFSZ)):
        words = ("sh", "-c", f"kill -{name} $$; echo alive")
        done = gated(signed, "--python", signed.python, words=words)
        assert (done.returncode, done.stdout) == (-number, "")


def test_no_child_and_no_descriptor_is_left_to_the_job(signed: Signed) -> None:
    code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    assert gated(signed, words=(signed.python, "-c", code)).stdout == "[0, 1, 2]\n"
    children = "cat /proc/$$/task/$$/children"
    words = ("sh", "-c", f"c=$({children}); set -- $c; echo $#")
    assert gated(signed, "--python", signed.python, words=words).stdout == "1\n"  # the subshell


def test_a_refused_job_leaves_no_guest_behind(signed: Signed) -> None:
    refused(gated(signed, "--require", "executed"), 11, "assurance is scanned, not executed")
    left = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # others' processes end while this looks
            left += [place] if str(signed.python).encode() in place.read_bytes() else []
    assert left == []


def test_what_was_not_compared_is_said_unless_quiet(signed: Signed) -> None:
    done = gated(signed)
    assert (done.returncode, done.stdout) == (0, f"{STARTED}\n")
    assert done.stderr == "envcheck: no card is seen here, so none was compared with hopper\n"
    assert gated(signed, "-q").stderr == ""


# Which environment


def installed_again(signed: Signed, folder: Path) -> Path:
    """Install the same wheels anew, after the manifest was made."""
    return venv(folder / "again", *wheels(folder / "wheels"))


def elsewhere(signed: Signed, place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return gated(signed, *options, words=(place / "bin" / "python", *JOB))


def test_the_same_wheels_in_another_place_are_the_same_environment(
    signed: Signed, tmp_path: Path
) -> None:
    place = installed_again(signed, tmp_path)
    assert elsewhere(signed, place).stdout == f"{STARTED}\n"
    assert elsewhere(signed, place, "--deep").stdout == f"{STARTED}\n"


def _install(place: Path, folder: Path) -> None:
    package = wheel(folder, "one-more", "3.1", {"one_more.py": b""})
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
    quiet = ["-q", "--no-deps", "--no-index", "--disable-pip-version-check", str(package)]
    subprocess.run([*pip, *quiet], check=True, timeout=120)


def _upgrade(place: Path, folder: Path) -> None:
    shutil.rmtree(site(place) / "plain-2.0.dist-info")
    shutil.unpack_archive(wheel(folder, "plain", "2.1", {"plain.py": b""}), site(place), "zip")


def _rebuild(place: Path, folder: Path) -> None:
    shutil.unpack_archive(wheel(folder, "plain", "2.0", {"plain.py": b"z"}), site(place), "zip")


def _remove(place: Path, _: Path) -> None:
    shutil.rmtree(site(place) / "plain-2.0.dist-info")


def _flip(place: Path, _: Path) -> None:
    """Change one byte, not the size."""
    library = site(place) / "gpu" / "_C.so"
    data = bytearray(library.read_bytes())
    data[-1] ^= 1
    library.write_bytes(data)


def _grow(place: Path, _: Path) -> None:
    with (site(place) / "gpu" / "_C.so").open("ab") as file:
        file.write(b"\0")


def _unlink(place: Path, _: Path) -> None:
    (site(place) / "gpu" / "_C.so").unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_install, "one-more 3.1 is new"),
        (_upgrade, "plain is 2.1, and was 2.0"),
        (_rebuild, "plain 2.0 has other files in its RECORD"),
        (_remove, "plain 2.0 is gone"),
        (_flip, "gpu/_C.so of gpu-package 1.0 has other content than its RECORD says"),
        (_grow, "gpu/_C.so of gpu-package 1.0 has another size than its RECORD says"),
        (_unlink, "gpu/_C.so of gpu-package 1.0 is gone"),
    ],
)
def test_each_change_of_the_environment_is_named(
    signed: Signed, tmp_path: Path, change: object, said: str
) -> None:
    place = installed_again(signed, tmp_path)
    change(place, tmp_path)  # type: ignore[operator]
    refused(elsewhere(signed, place), 12, said)


def test_what_hides_behind_size_and_time_is_seen_by_deep(signed: Signed, tmp_path: Path) -> None:
    place = installed_again(signed, tmp_path)
    _flip(place, tmp_path)
    os.utime(site(place) / "gpu" / "_C.so", (0, 0))
    assert elsewhere(signed, place).returncode == 0  # as the README's limits say
    refused(elsewhere(signed, place, "--deep"), 12, "gpu/_C.so of gpu-package 1.0 has other")


def test_a_changed_module_is_seen_by_deep(signed: Signed, tmp_path: Path) -> None:
    place = installed_again(signed, tmp_path)
    (site(place) / "plain.py").write_bytes(b"y = 3\n")
    assert elsewhere(signed, place).returncode == 0
    done = elsewhere(signed, place, "--deep")
    refused(done, 12, "plain.py of plain 2.0 has other content")
    assert "try: pip install --force-reinstall --no-deps 'plain==2.0'\n" in done.stderr


def test_a_file_that_differed_when_the_manifest_was_made_may_still_differ(tmp_path: Path) -> None:
    signed = sign_environment(tmp_path)
    (site(tmp_path / "venv") / "plain.py").write_bytes(b"patched before\n")
    check = ("check", "-q", "--python", signed.python, "--arch", "hopper", "--sign", signed.key)
    assert envcheck(*check, "-o", signed.manifest).returncode == 0
    assert gated(signed, "--deep").returncode == 0
    (site(tmp_path / "venv") / "gpu" / "__init__.py").write_bytes(b"patched after\n")
    refused(gated(signed, "--deep"), 12, "gpu/__init__.py of gpu-package 1.0 has another size")


def test_the_manifest_of_another_environment_is_refused(signed: Signed, tmp_path: Path) -> None:
    other = venv(tmp_path / "other", wheel(tmp_path, "else", "1", {"other.py": b""}))
    done = elsewhere(signed, other)
    refused(done, 12, "gpu-package 1.0 is gone; plain 2.0 is gone; else 1 is new")


def test_another_python_is_another_environment(signed: Signed) -> None:
    def older(inventory, report):
        there = replace(inventory.environment, python="3.9.1")
        return replace(inventory, environment=there), report

    done = gated(signed, "--manifest", signed.changed("python", older))
    refused(done, 12, "another environment: Python 3.9.1 there")


# Driver and card: tests/fake_driver.py's is "Fake 90" of sm_90, its UUID counts up from 0.

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def ran_on(assurance: Assurance = Assurance.EXECUTED, **fields: object) -> Change:
    told = {"name": "Fake 90", "sm": "sm_90", "uuid": UUID, "driver": None, **fields}
    card = Card(total_memory=1, free_memory=1, mig=False, **told)  # type: ignore[arg-type]
    executed = Executed(outcome=Outcome(status="ok"), card=card, torch="2.14.1")

    def change(inventory, report):
        return replace(inventory, executed=executed), replace(report, assurance=assurance)

    return change


def test_the_card_that_everything_ran_on_lets_the_job_start(signed: Signed, fake: Path) -> None:
    manifest = signed.changed("same", ran_on())
    options = ("--manifest", manifest, "--require", "executed", "--target", "h200")
    done = gated(signed, *options, env=driver_words(fake))
    assert (done.returncode, done.stdout) == (0, f"{STARTED}\n"), done.stderr
    assert "with which driver it was made" in done.stderr


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "NVIDIA H200"}, "another card: NVIDIA H200 (sm_90) in the manifest, Fake 90"),
        ({"sm": "sm_120"}, "another card: Fake 90 (sm_120) in the manifest, Fake 90 (sm_90) here"),
        ({"uuid": "GPU-1"}, f"another Fake 90: GPU-1 in the manifest, {UUID} here"),
        ({"driver": "580.65.06"}, "another driver: 580.65.06 in the manifest, none that is told"),
    ],
)
def test_another_card_or_driver_is_refused(signed: Signed, fake: Path, fields, said: str) -> None:
    manifest = signed.changed("other", ran_on(**fields))
    refused(gated(signed, "--manifest", manifest, env=driver_words(fake)), 12, said)


def test_another_card_of_the_model_will_do_where_less_than_executed_is_claimed(
    signed: Signed, fake: Path
) -> None:
    manifest = signed.changed("part", ran_on(Assurance.SCANNED, uuid="GPU-1"))
    assert gated(signed, "--manifest", manifest, env=driver_words(fake)).returncode == 0


def test_no_card_where_the_manifest_has_one_is_refused(signed: Signed, fake: Path) -> None:
    manifest = signed.changed("none", ran_on())
    refused(gated(signed, "--manifest", manifest), 12, "the manifest's card is Fake 90")
    stub = gated(signed, "--manifest", manifest, env=driver_words(fake, init=34))
    refused(stub, 12, "is a stub")


def test_a_manifest_for_another_generation_is_refused_where_a_card_is(
    tmp_path: Path, fake: Path
) -> None:
    signed = sign_environment(tmp_path, arch="ada")
    refused(gated(signed, env=driver_words(fake)), 12, "about ada (sm_89), here is Fake 90 (sm_90)")


def test_a_manifest_about_a_driver_wants_one(signed: Signed) -> None:
    manifest = signed.changed("driver", with_report(driver="580.65.06"))
    refused(gated(signed, "--manifest", manifest), 12, "about driver 580.65.06, and here is none")


def on(card: DriverCard, driver: str | None, here: Present, teller: str) -> Present:
    """Return the same environment on a machine that nobody has here."""
    if teller == "NVML":
        only = OnlyCard(name=card.name, sm=card.sm, uuid=card.uuid, module=driver)
        return replace(here, only=only, cards=None)
    facts = DriverFacts(init=0, cards=(card,))
    return replace(here, cards=Cards(driver=facts, module=driver, nodes=("/dev/nvidia0",)))


H200 = DriverCard(
    name="NVIDIA H200", sm="sm_90", uuid="GPU-1", total_memory=1, multiprocessors=132,
    shared_memory_per_block=232448,
)  # fmt: skip


@pytest.mark.parametrize("teller", ["CUDA", "NVML"])
@pytest.mark.parametrize(
    ("there", "card", "driver", "said"),
    [
        ({}, H200, "580.65.06", None),
        ({}, H200, "580.65.07", "another driver: 580.65.06 in the manifest, 580.65.07 here"),
        ({}, H200, "570.1", "another driver: 580.65.06 in the manifest, 570.1 here"),
        ({}, H200, None, "another driver: 580.65.06 in the manifest, none that is told here"),
        ({}, replace(H200, uuid="GPU-2"), "580.65.06", "another NVIDIA H200: GPU-1 in the manifest"),
        ({}, replace(H200, name="NVIDIA H100"), "580.65.06", "another card: NVIDIA H200 (sm_90)"),
        ({"sm": "sm_89", "name": "L4"}, H200, "580.65.06", "another card: L4 (sm_89)"),
        (None, H200, "580.65.06", None),
        (None, H200, "590.44.01", None),
        (None, H200, "575.57.08", "an older driver: 580.65.06 in the manifest, 575.57.08 here"),
        (None, replace(H200, sm="sm_120"), "580.65.06", "about hopper (sm_90), here is NVIDIA H200"),
    ],
)  # fmt: skip
def test_driver_and_card_of_other_machines(
    signed: Signed, there, card, driver, said, teller
) -> None:
    """Without a card in the manifest (None) its driver is the least one, and its SM decides."""
    told = {"name": "NVIDIA H200", "uuid": "GPU-1", "driver": "580.65.06", **(there or {})}
    change = with_report(driver="580.65.06") if there is None else ran_on(**told)
    manifest = signed.read(signed.changed("machine", change))
    looking = Looking(str(signed.python))
    try:
        here = on(card, driver, looking.answer(PresentRequest(since=0.0)), teller)
    finally:
        looking.end()
    if said is None:
        assert same.require(manifest, here) == ()
    else:
        with pytest.raises(JobRefused) as caught:
            same.require(manifest, here)
        assert said in caught.value.message


# What the manifest says


def test_verdicts_have_their_own_codes(tmp_path: Path) -> None:
    signed = sign_environment(tmp_path)
    for arch, code in (("turing", 10), ("hopper", 11)):
        more = () if code == 10 else ("--require", "executed")
        check = ("check", "-q", "--python", signed.python, "--arch", arch, *more)
        made = envcheck(*check, "--sign", signed.key, "-o", signed.manifest)
        assert made.returncode == code
        refused(gated(signed), code, "the manifest's verdict is in")


@pytest.mark.parametrize(
    ("age", "limit", "said"),
    [
        (timedelta(hours=3), "2h", "the manifest is 3 h old, more than 2 h"),
        (timedelta(minutes=5), "90s", "the manifest is 5 min old, more than 90 s"),
        (timedelta(days=40), "30d", "the manifest is 40 d old, more than 30 d"),
        (-timedelta(hours=1), "2h", "and the clock here says"),
    ],
)
def test_old_and_future_manifests_are_refused(signed: Signed, age, limit: str, said: str) -> None:
    manifest = signed.changed("aged", age=age)
    refused(gated(signed, "--manifest", manifest, "--max-age", limit), 12, said)


def test_a_manifest_from_the_future_is_refused_without_a_limit_too(signed: Signed) -> None:
    manifest = signed.changed("future", age=-timedelta(minutes=10))
    refused(gated(signed, "--manifest", manifest), 12, "the manifest is from 20")


def test_a_young_one_is_not(signed: Signed) -> None:
    manifest = signed.changed("young", age=timedelta(minutes=50))
    assert gated(signed, "--manifest", manifest, "--max-age", "1h").returncode == 0


def test_a_clock_that_was_set_back_is_seen_by_the_time_of_the_file(signed: Signed) -> None:
    """Nobody can set that time: so the clock is what the test gives another value."""
    old = signed.changed("old", age=timedelta(hours=30))
    manifest = signed.read(old)
    now, arrived = time.time(), old.stat().st_ctime
    day = policy.Policy(max_age=policy.age("24h"))
    with pytest.raises(JobRefused, match="30 h old"):
        gate.require(manifest, day, now=now, arrived=arrived)
    with pytest.raises(JobRefused, match="it was set back"):
        gate.require(manifest, day, now=now - 10 * 3600, arrived=arrived)


@pytest.mark.parametrize("age", ["", "0h", "-1h", "24", "1.5h", "1w", "²h", "h", "99999d"])
def test_what_is_no_age_is_refused(signed: Signed, age: str) -> None:
    refused(gated(signed, f"--max-age={age}"), 2, "is no age such as 30m, 24h or 7d")


def test_the_target_must_be_the_manifests(signed: Signed) -> None:
    done = gated(signed, "--target", "rtx-5090")
    refused(done, 12, "is about hopper (sm_90), not rtx-5090 (sm_120)")
    assert gated(signed, "--target", "sm_90").returncode == 0
    refused(gated(signed, "--target", "hoper"), 2, "unknown target")


@pytest.mark.parametrize(
    ("there", "wanted", "code"),
    [
        ("rtx-5080", "rtx-5080", 0),
        ("rtx-5080", "rtx-5090", 12),
        ("rtx-5080", "blackwell", 0),
        ("blackwell", "rtx-5090", 0),  # an architecture is about each of its cards
        ("NVIDIA GeForce RTX 5080", "rtx-5090", 12),
        ("NVIDIA GeForce RTX 5080", "rtx-5080", 0),
        ("NVIDIA GeForce RTX 5070", "rtx-5090", 12),  # without a row
    ],
)
def test_another_product_of_one_sm_is_another_target(
    signed: Signed, there: str, wanted: str, code: int
) -> None:
    known = (
        targets.of_card(replace(H200, name=there, sm="sm_120"))
        if there.startswith("NVIDIA")
        else targets.resolve(there)
    )
    manifest = signed.changed("product", about(known))
    done = gated(signed, "--manifest", manifest, "--target", wanted)
    if code:
        refused(done, code, "the manifest is about ", f"not {wanted} (sm_120)")
    assert done.returncode == code


def about(target: Target) -> Change:
    def change(inventory, report):
        line = str(report.summary["line"]).replace("hopper", target.name)
        summary = {**report.summary, "line": line}
        return inventory, replace(report, target=target, summary=summary)

    return change


# What a preflight found


def looked_at(*cards: DriverCard, word: str = "keep") -> Change:
    facts = DriverFacts(init=0, cards=cards)
    machine = Machine(asked=Asked(), cards=Cards(driver=facts, nodes=("/dev/nvidia0",)))

    def change(inventory, report):
        decision = {"word": word, "facts": ("a card",)}
        summary = {**report.summary, "decision": decision}
        return replace(inventory, machine=machine), replace(report, summary=summary)

    return change


FAKE_CARD = DriverCard(
    name="Fake 90", sm="sm_90", uuid=UUID, total_memory=1, multiprocessors=132,
    shared_memory_per_block=232448,
)  # fmt: skip


@pytest.mark.parametrize(
    ("word", "code"), [("keep", 0), ("keep with reservations", 0), ("give back", 11)]
)
def test_no_job_starts_on_a_machine_that_is_to_be_given_back(
    signed: Signed, fake: Path, word: str, code: int
) -> None:
    """Whatever else the manifest says: here its verdict is compatible."""
    manifest = signed.changed("decided", looked_at(FAKE_CARD, word=word))
    done = gated(signed, "--manifest", manifest, env=driver_words(fake))
    assert (done.returncode, done.stdout) == (code, "" if code else f"{STARTED}\n")
    assert ("decision is give back" in done.stderr) is bool(code)


def test_the_cards_are_those_that_the_preflight_looked_at(signed: Signed, fake: Path) -> None:
    manifest = signed.changed("one", looked_at(FAKE_CARD))
    given = ("--manifest", manifest)
    assert gated(signed, *given, env=driver_words(fake)).returncode == 0
    refused(
        gated(signed, *given, env=driver_words(fake, count=2)),
        12,
        f"another Fake 90: {UUID} in the",
    )
    refused(gated(signed, *given), 12, "card is Fake 90, and here is none")
    other = signed.changed("other", looked_at(replace(FAKE_CARD, uuid="GPU-1")))
    refused(gated(signed, "--manifest", other, env=driver_words(fake)), 12, UUID)
    hidden = signed.changed("hidden", looked_at(replace(FAKE_CARD, uuid="GPU-redacted-0123")))
    done = gated(signed, "--manifest", hidden, env=driver_words(fake))
    assert (done.returncode, done.stdout) == (0, f"{STARTED}\n")
    assert "which Fake 90 it is was not compared" in done.stderr


# Settings


def settled(folder: Path, text: str) -> Path:
    (folder / "envcheck.toml").write_text(textwrap.dedent(text))
    return folder


def behind_settings(signed: Signed, folder: Path, *options: str | Path, name: str = "manifest"):
    manifest = ("--manifest", signed.folder / f"{name}.json")
    return envcheck("guard", *manifest, *options, "--", signed.python, *JOB, cwd=folder)


def test_keys_and_rules_stand_in_the_settings(signed: Signed, tmp_path: Path) -> None:
    shutil.copy(signed.public, tmp_path / "ours.pub")
    keys = '[guard]\nkeys = [{ name = "ci", path = "ours.pub" }]\n'
    assert behind_settings(signed, settled(tmp_path, keys)).returncode == 0
    signed.changed("aged", age=timedelta(hours=3))
    settled(tmp_path, keys + 'max_age = "2h"\n')
    refused(behind_settings(signed, tmp_path, name="aged"), 12, "3 h old")
    over = behind_settings(signed, tmp_path, "--max-age", "4h", name="aged")
    assert over.returncode == 0
    for line, code, said in (
        ('require = "compiled"', 11, "assurance is scanned, not compiled"),
        ('target = "ada"', 12, "about hopper (sm_90), not ada (sm_89)"),
        (
            'checks = ["dev-shm-is-large-enough"]',
            11,
            "required check dev-shm-is-large-enough is sk",
        ),
        ('checks = ["extensions-imports"]', 11, "did you mean extensions-import?"),
    ):
        refused(behind_settings(signed, settled(tmp_path, keys + line)), code, said)


def test_a_table_of_a_pyproject_counts_too(signed: Signed, tmp_path: Path) -> None:
    text = '[project]\nname = "x"\n[tool.envcheck.guard]\nrequire = "executed"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    refused(behind_settings(signed, tmp_path, "--key", signed.public), 11, "not executed")


def test_a_warning_refuses_where_the_settings_list_those_that_are_allowed(
    signed: Signed, tmp_path: Path
) -> None:
    read = signed.read()
    (warned,) = {f.check for f in read.report.findings if f.status is Status.WARN}
    key = ("--key", signed.public)
    assert behind_settings(signed, tmp_path, *key).returncode == 0
    for allowed in ("[]", '["files-match-record"]'):
        settled(tmp_path, f"[guard]\nwarns = {allowed}\n")
        done = behind_settings(signed, tmp_path, *key)
        refused(done, 11, f"{warned} warns, which `warns` does not allow")
    settled(tmp_path, f'[guard]\nwarns = ["{warned}"]\n')
    assert behind_settings(signed, tmp_path, *key).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gaurd]\n", "envcheck.toml: gaurd: unknown key; did you mean guard?"),
        ("[guard]\nkey = []\n", "envcheck.toml: guard.key: unknown key; did you mean keys?"),
        ('[guard]\nmax_age = "soon"\n', "envcheck.toml: guard.max_age: 'soon' is no age"),
        ('[guard]\nrequire = "all"\n', "envcheck.toml: guard.require"),
        ('[guard]\ntarget = "5090"\n', "envcheck.toml: guard.target: unknown target '5090'"),
        ('[guard]\nwarns = "none"\n', "envcheck.toml: guard.warns: expected an array"),
        ('[guard]\nkeys = [{ name = "a", path = "no.pub" }]\n', "guard.keys[0].path: no.pub"),
        ('[guard]\nkeys = [{ path = "envcheck.toml" }]\n', "guard.keys[0].name: missing"),
        ('[guard]\nkeys = [{ name = "a", paht = "x" }]\n', "did you mean path?"),
    ],
)
def test_a_mistake_in_the_settings_starts_nothing(
    signed: Signed, tmp_path: Path, text: str, said: str
) -> None:
    settled(tmp_path, text)
    refused(behind_settings(signed, tmp_path, "--key", signed.public), 2, said)


def test_what_only_a_build_needs_is_not_asked_for(signed: Signed, tmp_path: Path) -> None:
    settled(tmp_path, 'lock = "not-here.txt"\n[guard]\nrequire = "scanned"\n')
    assert behind_settings(signed, tmp_path, "--key", signed.public).returncode == 0


# Keys and files


def test_without_a_key_nothing_is_trusted(signed: Signed, tmp_path: Path) -> None:
    refused(behind_settings(signed, tmp_path), 2, "nothing says whose signature")


def test_a_key_that_anybody_may_write_is_warned_about(signed: Signed, tmp_path: Path) -> None:
    key = tmp_path / "open.pub"
    shutil.copy(signed.public, key)
    key.chmod(0o666)
    done = envcheck("guard", "--manifest", signed.manifest, "--key", key, "--", signed.python, *JOB)
    assert done.returncode == 0
    assert f"envcheck: warning: {key}: anybody may write to this key" in done.stderr


@pytest.mark.parametrize(("mode", "warned"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_a_key_that_anybody_may_replace_is_warned_about(
    signed: Signed, tmp_path: Path, mode: int, *, warned: bool
) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    key = Path(shutil.copy(signed.public, folder))
    folder.chmod(mode)
    done = gated(signed, "--key", key)
    assert done.returncode == 0
    assert ("anybody may replace this key" in done.stderr) is warned


@pytest.mark.parametrize("name", ["envcheck.toml", "pyproject.toml"])
def test_settings_that_are_a_link_to_nothing_start_nothing(
    signed: Signed, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).symlink_to(tmp_path / "gone")
    done = behind_settings(signed, tmp_path, "--key", signed.public)
    refused(done, 3, name)


def test_a_manifest_of_a_hundred_megabytes_is_not_read(signed: Signed, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(100 * 1000 * 1000)
    refused(gated(signed, "--manifest", large), 12, "100000000 bytes, and 67108864 are read")


@pytest.mark.parametrize("place", ["missing.json", "."])
def test_a_manifest_that_is_not_to_be_had(signed: Signed, tmp_path: Path, place: str) -> None:
    refused(gated(signed, "--manifest", tmp_path / place), 3, str(tmp_path))


# Which command


def test_a_command_that_is_not_there(signed: Signed) -> None:
    refused(gated(signed, words=("no-such-command",)), 3, "no-such-command: no such command")


def test_a_program_of_no_python_needs_to_be_told_one(signed: Signed) -> None:
    done = gated(signed, words=("sh", "-c", "echo x"))
    refused(done, 2, "is no Python and no script of one")
    assert "--python PATH" in done.stderr


@pytest.mark.parametrize("named", ["bin/python", "."])
def test_python_names_an_interpreter_or_an_environment(signed: Signed, named: str) -> None:
    place = signed.python.parent.parent / named
    done = gated(signed, "--python", place, words=("sh", "-c", "echo x"))
    assert (done.returncode, done.stdout) == (0, "x\n")


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_python_of_a_script_is_the_one_that_counts(signed: Signed, tmp_path: Path) -> None:
    other = venv(tmp_path / "other") / "bin" / "python"
    body = "import sys\nprint(sys.prefix)\n"
    good = script(tmp_path / "good", f"#!{signed.python}\n{body}")
    done = gated(signed, words=(good,))
    assert (done.returncode, done.stdout) == (0, f"{signed.python.parent.parent}\n")
    refused(gated(signed, words=(script(tmp_path / "bad", f"#!{other}\n{body}"),)), 12, "is gone")


def test_commands_are_found_on_path_as_exec_finds_them(signed: Signed, tmp_path: Path) -> None:
    path = {"PATH": f"{signed.python.parent}:{os.environ['PATH']}"}
    code = "import sys; print(sys.prefix)"
    expected = f"{signed.python.parent.parent}\n"
    assert gated(signed, words=("python3", "-c", code), env=path).stdout == expected
    by_env = script(tmp_path / "by-env", f"#!/usr/bin/env -S python3 -u\n{code}\n")
    assert gated(signed, words=(by_env,), env=path).stdout == expected


def test_the_script_that_pip_writes_for_a_place_with_a_space(tmp_path: Path) -> None:
    place = venv(tmp_path / "a place")
    tool = wheel(tmp_path, "tool", "1", {"tool.py": b"def main():\n    print('ran')\n"})
    with_entry = tmp_path / "entry"
    shutil.unpack_archive(tool, with_entry, "zip")
    text = "[console_scripts]\nthe-tool = tool:main\n"
    (with_entry / "tool-1.dist-info" / "entry_points.txt").write_text(text)
    made = Path(shutil.make_archive(str(tmp_path / "zip"), "zip", with_entry)).rename(tool)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
    subprocess.run([*pip, "-q", "--no-deps", "--no-index", str(made)], check=True, timeout=120)
    found = Path(job.interpreter(str(place / "bin" / "the-tool")))
    assert found.parent == place / "bin"
    assert found.name.startswith("python")


@pytest.mark.parametrize(
    "head", ["", "#!", "#! \n", "#!/bin/sh\n", "#!/usr/bin/env\n", "#!/usr/bin/env gone-python\n"]
)
def test_scripts_of_nothing_known(tmp_path: Path, head: str) -> None:
    with pytest.raises(UsageError, match="whose environment"):
        job.interpreter(str(script(tmp_path / "script", head)))


@pytest.mark.parametrize(
    "before", ["PYTHONPATH=/other", "-u PYTHONPATH", "-C /other", "-i", "CUDA_VISIBLE_DEVICES=1"]
)
def test_a_script_that_gives_itself_another_environment_needs_to_be_told_one(
    tmp_path: Path, before: str
) -> None:
    text = f"#!/usr/bin/env -S {before} {sys.executable}\n"
    with pytest.raises(UsageError, match="whose environment"):
        job.interpreter(str(script(tmp_path / "script", text)))


def test_the_home_of_another_python_starts_nothing(
    signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest starts with `-E`, and would look at other folders than the job."""
    monkeypatch.setenv("PYTHONHOME", sys.base_prefix)
    with pytest.raises(UsageError, match="PYTHONHOME is set"):
        Looking(str(signed.python))


def test_a_python_that_is_not_the_named_one_is_told(signed: Signed) -> None:
    words = (sys.executable, *JOB)
    done = gated(signed, "--python", signed.python, words=words)
    assert (done.returncode, done.stdout) == (0, f"{STARTED}\n")
    assert f"{sys.executable}, which the command uses, was not compared" in done.stderr
    own = gated(signed, "--python", signed.python)
    assert "which the command uses" not in own.stderr


def test_what_cannot_be_started_is_said(signed: Signed, tmp_path: Path) -> None:
    empty = script(tmp_path / "empty", "no program\n")
    refused(gated(signed, "--python", signed.python, words=(empty,)), 3, "cannot be started")


# The first line of a training script

LIBRARY = """
import sys
sys.path.append({folder!r})
import envcheck.guard, envcheck.errors
try:
    read = envcheck.guard.require({arguments})
    print("went on", read.subject[:7], read.report.target.name)
except envcheck.errors.EnvcheckError as error:
    print(type(error).__name__, error.exit_code, error.message)
print(sorted({{"torch", "rich", "docker", "numpy"}} & set(sys.modules)))
"""


def in_a_script(signed: Signed, **arguments: object) -> list[str]:
    """Call require() in the environment's own Python, which has no envcheck of its own."""
    given = {"manifest": str(signed.manifest), "key": str(signed.public), **arguments}
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    needs = next(Path(p) for p in sys.path if (Path(p) / "securesystemslib").is_dir())
    code = LIBRARY.format(folder=str(needs), arguments=words)
    code = f"import sys; sys.path.append({str(Path(package.__file__).parent.parent)!r})\n" + code
    done = subprocess.run(
        [signed.python, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=signed.folder,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()


def test_require_returns_what_was_signed_and_imports_nothing_large(signed: Signed) -> None:
    assert in_a_script(signed) == ["went on sha256: hopper", "[]"]


def test_require_raises_what_the_command_would_say(signed: Signed) -> None:
    said, _ = in_a_script(signed, assurance="executed")
    assert said == "JobRefused 11 the manifest's assurance is scanned, not executed"
    old = str(signed.changed("older", age=timedelta(hours=3)))
    said, _ = in_a_script(signed, manifest=old, max_age="1h")
    assert said.startswith("JobRefused 12 the manifest is 3 h old")
    assert in_a_script(signed, max_age="soon")[0].startswith("UsageError 2 'soon' is no age")
    assert in_a_script(signed, key=())[0].startswith("UsageError 2 nothing says whose")
