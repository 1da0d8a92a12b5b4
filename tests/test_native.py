"""`--arch native` with drivers of our own: which target that is, and why there is none.

Codes of cuInit and their names are those of cuda.h of CUDA 13.0.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_driver import words
from running import envcheck

from envcheck import targets
from envcheck.asking import Wish
from envcheck.config import Extension
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.model import Domain, Target
from envcheck.core.unusable import unusable

CARD = DriverCard(
    name="NVIDIA RTX 9999",
    sm="sm_90",
    uuid="GPU-1",
    total_memory=1 << 34,
    multiprocessors=100,
    shared_memory_per_block=100_000,
)
NODES = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
WORKS = Cards(driver=DriverFacts(init=0, cards=(CARD,)), nodes=NODES, module="580.1")


def test_a_known_card_is_its_architecture():
    target = targets.of_card(CARD)
    assert (target.name, target.sm, target.card) == ("hopper", "sm_90", "NVIDIA RTX 9999")
    assert target.shared_memory_per_block == 232448


def test_a_card_that_no_row_names_is_its_sm_with_its_own_limits():
    target = targets.of_card(replace(CARD, sm="sm_107"))
    assert (target.name, target.sm, target.shared_memory_per_block) == ("sm_107", "sm_107", 100_000)


def failing(code: int, name: str = "") -> Cards:
    return replace(WORKS, driver=DriverFacts(init=code, init_name=name))


@pytest.mark.parametrize(
    ("cards", "domain", "message", "remedy"),
    [
        (Cards(driver=DriverFacts(missing="x")), Domain.HOST,
         "no NVIDIA driver is on this machine", "--arch blackwell"),
        (Cards(driver=DriverFacts(missing="x"), in_container=True), Domain.HOST,
         "no card is in this container", "--gpus all"),
        (Cards(driver=DriverFacts(missing="x"), module="580.1", in_container=True), Domain.HOST,
         "its libcuda.so.1 is not in here", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        (Cards(driver=None, said="not done after 60 s"), Domain.HOST,
         "did not come to an end: not done after 60 s", "reboot the host"),
        (replace(failing(100), visible="7"), Domain.JOB,
         "CUDA_VISIBLE_DEVICES=7 names no card", "unset CUDA_VISIBLE_DEVICES"),
        (replace(failing(100), visible=""), Domain.JOB,
         "CUDA_VISIBLE_DEVICES=(empty) names no card", "nvidia-smi -L"),
        (failing(100), Domain.HOST, "finds no card that it can use", "dmesg"),
        (replace(failing(100), nodes=("/dev/nvidiactl",)), Domain.HOST,
         "there is no /dev/nvidia0", "--gpus all"),
        # R23 (NVIDIA/nvidia-docker#1085): nvidia-smi works, and CUDA does not.
        (replace(failing(999), nodes=NODES[1:]), Domain.HOST,
         "/dev/nvidia-uvm is not", "nvidia-modprobe -u -c=0"),
        (replace(failing(100), nodes=NODES[1:], in_container=True), Domain.HOST,
         "/dev/nvidia-uvm is not", "--device /dev/nvidia-uvm"),
        # R23e (NVIDIA/nvidia-container-toolkit#48): the nodes are there, and were taken away.
        (replace(failing(100), nodes=(), forbidden=NODES, in_container=True), Domain.HOST,
         "/dev/nvidia-uvm is here, and this process may not open it", "start the container anew"),
        (replace(failing(304), nodes=(), forbidden=NODES[1:]), Domain.HOST,
         "/dev/nvidia0 is here, and this process may not open it", "group"),
        # Which are for root alone, and CUDA does without.
        (replace(failing(100), forbidden=("/dev/nvidia-caps/nvidia-cap1",)), Domain.HOST,
         "finds no card that it can use", "dmesg"),
        (replace(failing(803), nodes=NODES[1:]), Domain.HOST, "different versions", "`compat`"),
        (failing(34, "CUDA_ERROR_STUB_LIBRARY"), Domain.JOB, "is a stub", "LD_LIBRARY_PATH"),
        (failing(46, "CUDA_ERROR_DEVICE_UNAVAILABLE"), Domain.HOST, "is taken", "nvidia-smi"),
        # R23d (huggingface/huggingface_hub#4134): nvidia-smi -L is fine there.
        (failing(802, "CUDA_ERROR_SYSTEM_NOT_READY"), Domain.HOST, "fabric", "fabricmanager"),
        (failing(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), Domain.HOST,
         "different versions", "`compat`"),
        (failing(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"), Domain.IMAGE,
         "forward-compatibility", "compat"),
        (failing(999, "CUDA_ERROR_UNKNOWN"), Domain.HOST, "CUDA_ERROR_UNKNOWN (999)", "reboot"),
    ],
)  # fmt: skip
def test_why_there_is_no_card_and_whose_fault_that_is(cards, domain, message, remedy):
    cause = unusable(cards)
    assert cause is not None
    assert cause.domain is domain
    assert message in cause.message
    assert remedy in cause.remedy


def test_a_card_that_can_be_used_has_no_cause():
    assert unusable(WORKS) is None
    # A selection that names a card is none of anybody's faults.
    assert unusable(replace(WORKS, visible="0")) is None


@pytest.mark.parametrize("command", [("check",), ("scan", "."), ("build",)])
def test_without_a_card_nothing_begins(command, fake: Path, tmp_path):
    done = envcheck(*command, "--arch", "native", env=words(fake, init=34), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    error, hint = done.stderr.splitlines()
    assert "is a stub, which only serves linking: CUDA_ERROR_STUB_LIBRARY (34)" in error
    assert "LD_LIBRARY_PATH" in hint
    assert list(tmp_path.iterdir()) == []


def test_what_the_card_is_stands_in_the_report(fake: Path, tmp_path):
    (tmp_path / "x.so").write_bytes(b"")
    done = envcheck("scan", tmp_path, "--arch", "native", "--format", "json", env=words(fake))
    target = json.loads(done.stdout)["target"]
    assert (target["name"], target["sm"], target["card"]) == ("hopper", "sm_90", "Fake 90")


def test_a_card_that_torch_cannot_use_is_no_success(fake: Path, tmp_path):
    """The environment of the tests has no torch, or a driver that is none cannot run it."""
    done = envcheck("check", "--arch", "native", "--format", "json", env=words(fake), cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode in (10, 11)
    assert report["assurance"] == "scanned"
    (usable,) = (f for f in report["findings"] if f["check"] == "card-is-usable")
    assert usable["status"] in ("skip", "fail", "error")
    assert report["summary"]["executed"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arch", "ada", "--budget", "20s"), "--budget is about what is run on a card"),
        (("--arch", "ada", "--gpus", "all"), "--gpus is about what is run on a card"),
        (("--arch", "ada", "--gpus", "first"), "'first' names no cards"),
        (("--arch", "ada", "--budget", "soon"), "'soon' is no time such as 20s or 3m"),
        (("--arch", "ada", "--budget", "0s"), "'0s' is not between 1s and 1440m"),
    ],
)
def test_options_of_the_card_without_one_are_refused(options, said):
    done = envcheck("check", *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_gpus_name_cards_of_a_container(fake: Path):
    done = envcheck("check", "--arch", "native", "--gpus", "all", env=words(fake))
    assert done.returncode == 2
    assert "--gpus names cards of a container, and there is none" in done.stderr


def test_functions_in_files_of_one_name_keep_it_and_stay_apart(tmp_path):
    extensions = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "smoke.py").write_text(f"NAME = {name!r}")
        place = f"{tmp_path / name / 'smoke.py'}:check"
        extensions.append(Extension(name=name, smoke=place))
    target = Target(name="ada", sm="sm_89")
    wish = Wish(target=target, kernels=(), kernel_folders=(), extensions=tuple(extensions))
    (tmp_path / "staged").mkdir()
    folders = wish.stage(tmp_path / "staged")
    calls = wish.execute(folders, lambda _, path: str(path), cache="").smokes
    assert [(c.module, Path(c.place).name, c.function) for c in calls] == [
        ("one", "smoke.py", "check"),
        ("two", "smoke.py", "check"),
    ]
    assert [Path(c.place).read_text() for c in calls] == ["NAME = 'one'", "NAME = 'two'"]
