"""driver-supports-target: the floors of NVIDIA's tables, each just met and just missed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask, container, device_file, environment, question, scanned

from envcheck.checks.driver_supports_target import CHECK
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Domain, Finding, Image, Inventory, Status, Target, Torch

ID = "driver-supports-target"


def one(inventory: Inventory, sm: str, driver: str | None = None) -> Finding:
    (found,) = ask(ID, inventory, sm, driver)
    return found


def torch(cuda: str | None) -> Inventory:
    return environment(torch=Torch(version="2.9.1", cuda=cuda))


# R22: minor-version compatibility by CUDA major, and the first branch for the card.
@pytest.mark.parametrize(
    ("cuda", "sm", "least"),
    [
        ("11.8", "sm_86", "455"),
        ("11.8", "sm_75", "450.80.02"),
        ("12.1", "sm_75", "525.60.13"),
        ("12.6", "sm_90", "525.60.13"),
        ("12.8", "sm_120", "570"),
        ("12.9", "sm_121", "575"),
        ("13.0", "sm_120", "580.65.06"),
        ("13.2", "sm_80", "580.65.06"),
    ],
)
def test_least_driver(cuda: str, sm: str, least: str) -> None:
    found = one(torch(cuda), sm)
    assert (found.status, found.evidence["least_driver"]) == (Status.PASS, least)
    assert found.message.startswith(f"{least} is the least that would do")
    assert one(torch(cuda), sm, least).status is Status.PASS


@pytest.mark.parametrize(
    ("cuda", "sm", "driver"),
    [
        ("13.0", "sm_90", "580.65.05"),
        ("13.0", "sm_90", "575.64"),
        ("12.4", "sm_90", "525.60.11"),
        ("12.8", "sm_120", "565.57.01"),
        ("11.8", "sm_75", "450.80.01"),
    ],
)
def test_a_driver_below_the_floor_fails_and_says_which_would_do(
    cuda: str, sm: str, driver: str
) -> None:
    found = one(torch(cuda), sm, driver)
    assert (found.status, found.domain) == (Status.FAIL, Domain.HOST)
    assert found.subject == f"driver {driver}"
    assert found.remedy == f"use a host with driver {found.evidence['least_driver']} or newer"


def test_ptx_left_to_compile_raises_the_floor() -> None:
    inventory = environment(
        device_file("pkg/_C.so", "p90:8.4"), torch=Torch(version="2.5.1", cuda="12.4")
    )
    found = one(inventory, "sm_100")
    # CUDA 12.4 itself would run from 525 on, but its PTX needs 550, and the card 570.
    assert [n["driver"] for n in found.evidence["needs"]] == ["570", "525.60.13", "550.54.14"]
    assert found.evidence["least_driver"] == "570"
    assert one(environment(device_file("a.so", "p80:9.1")), "sm_90").evidence["least_driver"] == (
        "590.44.01"
    )


def test_ptx_beside_machine_code_does_not() -> None:
    found = one(scanned(device_file("a.so", "s90 p90:9.1")), "sm_90")
    assert found.evidence["least_driver"] == "520"


def test_a_scanned_library_that_links_the_runtime_names_its_cuda() -> None:
    file = DeviceFile(
        path="a.so",
        format="shared-object",
        size=1,
        containers=(container("s90"),),
        needed=("libc.so.6", "libcudart.so.12"),
    )
    assert one(scanned(file), "sm_90").evidence["least_driver"] == "525.60.13"
    # One of several variants has no floor to keep: it may not be the one.
    variant = DeviceFile(
        path="bitsandbytes/libbitsandbytes_cuda130.so",
        format="shared-object",
        size=1,
        containers=(container("s90"),),
        needed=("libcudart.so.13",),
    )
    assert one(scanned(variant), "sm_90").evidence["least_driver"] == "520"


@pytest.mark.parametrize("sm", ["sm_50", "sm_61", "sm_70", "sm_72"])
def test_r580_is_the_last_branch_for_cards_before_turing(sm: str) -> None:
    inventory = torch("12.6")
    assert one(inventory, sm, "580.159.04").status is Status.PASS
    found = one(inventory, sm, "590.44.01")
    assert (found.status, found.domain) == (Status.FAIL, Domain.HOST)
    assert "branch 580 is the last" in found.message
    assert one(inventory, "sm_75", "590.44.01").status is Status.PASS


@pytest.mark.parametrize("cuda", [None, "14.0"])
def test_what_no_table_knows_is_no_floor(cuda: str | None) -> None:
    found = one(torch(cuda), "sm_75")
    assert (found.status, found.required) == (Status.SKIP, False)


# Images: what they ask of a host, and packages for forward compatibility


def in_image(cuda: str, gate: str = "", *compat: str, **variables: str) -> Inventory:
    made = torch(cuda)
    assert made.environment is not None
    every = {"NVIDIA_REQUIRE_CUDA": gate, **variables}
    image = Image(reference="job:1", id="sha256:1", labels={}, variables=every)
    return replace(made, environment=replace(made.environment, image=image, compat=compat))


@pytest.mark.parametrize(
    ("cuda", "gate", "driver", "found"),
    [
        # artokun/comfyui-mcp#118: the gate says 12.8, the content needs 580.
        ("13.0", "cuda>=12.8", None, ["warn", "pass"]),
        ("13.0", "cuda>=13.0", None, ["pass"]),
        ("12.8", "cuda>=12.8", None, ["pass"]),
        ("12.8", "cuda>=12.0 brand=tesla,driver>=450", None, ["pass"]),
        ("12.8", "driver>=450", None, ["warn", "pass"]),
        ("12.8", "", None, ["pass"]),
        ("12.8", "nonsense", None, ["pass"]),
        # dizcza/docker-hashcat#21: a gate that the host does not meet.
        ("12.6", "cuda>=12.8", "550.54.14", ["fail", "pass"]),
        ("12.6", "cuda>=12.8", "570.26", ["pass"]),
        ("12.6", "cuda>=12.8 brand=tesla,driver>=550,driver<551", "550.54.14", ["pass"]),
    ],
)
def test_what_an_image_asks_of_its_host(
    cuda: str, gate: str, driver: str | None, found: list[str]
) -> None:
    assert [f.status.value for f in ask(ID, in_image(cuda, gate), "sm_90", driver)] == found


def test_a_gate_that_is_switched_off_is_none() -> None:
    inventory = in_image("13.0", "cuda>=12.8", NVIDIA_DISABLE_REQUIRE="1")
    assert [f.status.value for f in ask(ID, inventory, "sm_90")] == ["pass"]


@pytest.mark.parametrize(
    ("target", "sm", "compat", "status", "says"),
    [
        ("h100", "sm_90", "580.82.07", "warn", "only forward compatibility helps"),
        ("l4", "sm_89", "580.82.07", "warn", "only forward compatibility helps"),
        ("rtx-4090", "sm_89", "580.82.07", "fail", "GeForce cards refuse it (error 804)"),
        ("sm_89", "sm_89", "580.82.07", "fail", "only data-centre cards take it"),
        ("h100", "sm_90", "575.57.08", "fail", "needs 580.65.06"),
    ],
)
def test_forward_compatibility_is_for_data_centre_cards(
    target: str, sm: str, compat: str, status: str, says: str
) -> None:
    asked = question(in_image("13.0", "", compat), sm, "550.54.14")
    named = replace(asked, target=Target(name=target, sm=sm))
    (finding,) = CHECK.run(named)
    assert finding.status.value == status
    assert says in finding.message


def test_no_package_makes_a_driver_know_a_card() -> None:
    """A branch before 570 does not drive a Blackwell card, whatever libcuda is there."""
    (finding,) = ask(ID, in_image("12.8", "", "580.82.07"), "sm_100", "550.54.14")
    assert finding.status is Status.FAIL


def test_no_newer_driver_is_advised_where_there_is_none_for_the_card() -> None:
    """PTX of CUDA 13.1 alone: branch 590, and Pascal ends with 580."""
    inventory = scanned(device_file("x.so", "p60:9.1"))
    (finding,) = ask("device-code-runs-on-target", inventory, "sm_61")
    assert finding.status is Status.FAIL
    assert finding.remedy == (
        "use a package built with an older CUDA: no driver for this card is newer"
    )


@pytest.mark.parametrize("sm", ["sm_61", "sm_70"])
def test_r36_a_torch_without_code_for_an_old_card(sm: str) -> None:
    """R36, unslothai/unsloth#5876: cu130 wheels hold 7.5 and newer alone."""
    made = Torch(version="2.14.1", cuda="13.0", arch_list=("sm_75", "sm_80", "sm_90", "sm_120"))
    library = device_file("torch/lib/libtorch_cuda.so", "s75 s80 s90 s120")
    found = ask("torch-has-code-for-target", environment(library, torch=made), sm)
    assert [f.status.value for f in found] == ["fail"]
