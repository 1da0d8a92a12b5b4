"""Variables that choose cards, judged (recipe R25)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask, environment

from envcheck.core.model import Finding, Image

CHECK = "device-selection-is-valid"


def judged(driver: str | None = "580.65.06", image: dict[str, str] | None = None,
           **variables: str) -> list[Finding]:  # fmt: skip
    made = environment(variables=variables)
    held = None
    if image is not None:
        held = Image(reference="job:1", id="sha256:1", labels={}, variables=image)
    assert made.environment is not None
    facts = replace(made.environment, driver=driver, image=held)
    return ask(CHECK, replace(made, environment=facts), "sm_120")


def test_nothing_set_is_nothing_judged() -> None:
    assert [f.status.value for f in judged()] == ["skip"]


@pytest.mark.parametrize(
    ("value", "driver", "status"),
    [
        ("0,1", "580.65.06", "pass"),
        ("GPU-8932f937", "580.65.06", "pass"),  # pytorch/pytorch#90543
        ("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", "580.65.06", "pass"),  # vllm#41848
        ("0,2,-1,1", "580.65.06", "warn"),
        ("", "580.65.06", "fail"),
        ("", None, "warn"),
        ("-1", "580.65.06", "fail"),
        ("0,0", "580.65.06", "fail"),
        ("all", "580.65.06", "fail"),
    ],
)
def test_each_form(value: str, driver: str | None, status: str) -> None:
    (finding,) = judged(driver, CUDA_VISIBLE_DEVICES=value)
    assert finding.status.value == status
    assert bool(finding.remedy) is (status != "pass")


@pytest.mark.parametrize(
    ("value", "status"), [("PCI_BUS_ID", "pass"), ("FASTEST_FIRST", "pass"), ("PCI", "warn")]
)
def test_the_order_is_one_of_two_words(value: str, status: str) -> None:
    assert [f.status.value for f in judged(CUDA_DEVICE_ORDER=value)] == [status]


@pytest.mark.parametrize(("value", "status"), [("all", "pass"), ("void", "warn"), ("x", "warn")])
def test_of_an_image_its_own_value_counts(value: str, status: str) -> None:
    found = judged(image={"NVIDIA_VISIBLE_DEVICES": value})
    assert [f.status.value for f in found] == [status]
    # What the container of the look itself was given says nothing about a job's.
    assert [f.status.value for f in judged(NVIDIA_VISIBLE_DEVICES="void")] == ["skip"]
