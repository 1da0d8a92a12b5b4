"""torch-has-code-for-target: too old, too new, not for CUDA, and a list that says less."""

from __future__ import annotations

import pytest
from inventories import ask, device_file, environment, judged, scanned
from packaging.requirements import Requirement

from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Finding, Inventory, Status, Torch, Verdict

ID = "torch-has-code-for-target"

# The code of torch 2.6.0 and 2.11.0 as their wheels on PyPI hold it.
OLD = "s50 s60 s70 s75 s80 s86 s90 s90a"
NEW = "s75 s80 s86 s90 s100 s120"


def installed(codes: str, listed: str = "", cuda: str | None = "12.4", **more: object) -> Inventory:
    return environment(
        device_file("torch/lib/libtorch_cuda.so", codes),
        torch=Torch(version="2.6.0", cuda=cuda, arch_list=tuple(listed.split()), **more),
    )


def one(inventory: Inventory, sm: str) -> Finding:
    (found,) = ask(ID, inventory, sm)
    return found


@pytest.mark.parametrize("sm", ["sm_89", "sm_86", "sm_90", "sm_61"])
def test_a_build_with_code_for_the_card_passes(sm: str) -> None:
    found = one(installed(OLD), sm)
    assert (found.status, found.subject) == (Status.PASS, "torch 2.6.0")
    assert found.message.startswith("CUDA 12.4: machine code for")


# R03b: EC-001 and many more. None of these wheels holds PTX.
def test_a_card_newer_than_the_build_fails_and_names_the_release() -> None:
    found = one(installed(OLD), "sm_120")
    assert found.status is Status.FAIL
    assert found.message.startswith("the card is newer than this build: ")
    requirement = Requirement(found.remedy.split("'")[1])
    assert requirement.specifier.contains("2.8.0")
    assert not requirement.specifier.contains("2.7.1")


# R36: EC-034, EC-035.
@pytest.mark.parametrize("sm", ["sm_61", "sm_70"])
def test_a_card_older_than_the_build_fails_and_names_the_release(sm: str) -> None:
    found = one(installed(NEW, cuda="13.0"), sm)
    assert found.status is Status.FAIL
    assert found.message.startswith("the card is older than what this build supports: ")
    requirement = Requirement(found.remedy.split("'")[1])
    assert not requirement.specifier.contains("2.11.0")
    assert requirement.specifier.contains("2.7.1")


def test_a_card_between_two_of_the_build_fails_too() -> None:
    found = one(installed("s75 s90"), "sm_86")
    assert found.message.startswith("this build leaves the card out: ")


def test_suffixes_do_not_make_a_build_newer() -> None:
    found = one(installed("s80 s120a"), "sm_100")
    assert found.message.startswith("the card is newer than this build: ")


def test_code_without_its_place_on_the_list_warns() -> None:
    found = one(installed(NEW, "sm_75 sm_80 sm_86 sm_90"), "sm_120")
    assert found.status is Status.WARN
    assert "it will warn" in found.message


@pytest.mark.parametrize(
    ("listed", "sm"),
    [("sm_86", "sm_89"), ("sm_120", "sm_121"), ("sm_80 compute_90", "sm_120"), ("", "sm_120")],
)
def test_a_list_that_covers_the_card_in_another_way_does_not(listed: str, sm: str) -> None:
    assert one(installed(NEW, listed), sm).status is Status.PASS


def test_evidence_carries_what_torch_says_of_itself() -> None:
    found = one(installed(NEW, "sm_75 sm_120", cuda="12.8", cxx11_abi=True), "sm_120")
    assert found.evidence["cuda"] == "12.8"
    assert found.evidence["arch_list"] == ("sm_75", "sm_120")
    assert found.evidence["cxx11_abi"] is True


@pytest.mark.parametrize(
    ("hip", "kind"), [(None, "CPU-only"), ("6.2.41133", "for AMD (HIP 6.2.41133)")]
)
def test_a_build_without_cuda_fails(hip: str | None, kind: str) -> None:
    inventory = environment(torch=Torch(version="2.8.0+cpu", cuda=None, hip=hip))
    found = one(inventory, "sm_120")
    assert (found.status, found.evidence["reason"]) == (Status.FAIL, "no-cuda-build")
    assert found.message == f"this build is {kind}: it has no CUDA code"
    assert found.remedy == "pip install --force-reinstall 'torch>=2.8.0'"
    assert judged(inventory, "sm_120").verdict is Verdict.INCOMPATIBLE


def test_a_build_whose_library_is_gone_or_broken_is_an_error() -> None:
    gone = environment(torch=Torch(version="2.8.0", cuda="12.8"))
    broken = environment(
        DeviceFile(path="torch/lib/libtorch_cuda.so", format="other", size=3, problem="cut"),
        torch=Torch(version="2.8.0", cuda="12.8"),
    )
    for inventory in (gone, broken):
        assert one(inventory, "sm_120").status is Status.ERROR
        assert judged(inventory, "sm_120").verdict is Verdict.INCONCLUSIVE


def test_no_torch_is_said() -> None:
    for inventory in (environment(), scanned(device_file("a.so", "s80"))):
        found = one(inventory, "sm_120")
        assert (found.status, found.required) == (Status.SKIP, False)
