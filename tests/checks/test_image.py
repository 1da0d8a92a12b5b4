"""What an image says of itself against what is in it, and two builds against each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask, environment

from envcheck.core.model import Finding, Image, Inventory, Rebuilt, Status, Torch, Verdict

CHECK, TWICE = "image-labels-match-content", "build-is-reproducible"


def held(
    torch: str | None = "2.8.0+cu128",
    cuda: str | None = "12.8",
    *,
    reference: str = "registry.example/job:1",
    labels: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
) -> Inventory:
    inside = None if torch is None else Torch(version=torch, cuda=cuda)
    inventory = environment(torch=inside)
    image = Image(
        reference=reference, id="sha256:1", labels=labels or {}, variables=variables or {}
    )
    return replace(inventory, environment=replace(inventory.environment, image=image))


def labelled(**facts) -> Finding:
    (finding,) = ask(CHECK, held(**facts), "sm_120")
    return finding


def test_a_label_that_contradicts_the_content_fails() -> None:
    """The template of runpod/containers#114: named 2.8 and cu128, holding 2.4.1 and cu124."""
    labels = {"envcheck.torch": "2.8.0", "envcheck.cuda": "12.8"}
    finding = labelled(torch="2.4.1+cu124", cuda="12.4", labels=labels)
    assert finding.status is Status.FAIL
    assert finding.message == (
        "label envcheck.torch says torch 2.8.0, it holds 2.4.1+cu124; "
        "label envcheck.cuda says cuda 12.8, it holds 12.4"
    )


@pytest.mark.parametrize(
    "labels",
    [
        {"envcheck.torch": "2.8.0", "envcheck.cuda": "12.8"},
        {"pytorch-version": "v2.8"},
        {"com.example.torch_version": "2.8.0a0+gitabc"},
    ],
)
def test_labels_that_agree_pass(labels: dict[str, str]) -> None:
    assert labelled(labels=labels).status is Status.PASS


@pytest.mark.parametrize(
    "labels",
    [
        {},
        # The base image's toolkit; torch brings its own CUDA.
        {"com.nvidia.cuda.version": "12.4.1"},
        {"envcheck.torch": "none"},
        {"org.opencontainers.image.version": "22.04"},
    ],
)
def test_labels_that_say_nothing_of_torch_are_no_claim(labels: dict[str, str]) -> None:
    finding = labelled(labels=labels)
    assert (finding.status, finding.required) == (Status.SKIP, False)


@pytest.mark.parametrize(
    "facts",
    [
        {"reference": "runpod/pytorch:2.4.1-py3.11-cuda12.4.1-devel"},
        {"reference": "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"},
        {"reference": "me/torch2.4:latest"},
        {"variables": {"PYTORCH_VERSION": "2.4.0"}},
    ],
)
def test_a_name_or_an_inherited_variable_that_is_wrong_warns(facts: dict) -> None:
    finding = labelled(**facts)
    assert finding.status is Status.WARN
    assert "says torch 2.4" in finding.message


def test_a_right_name_passes_and_a_digest_is_no_version() -> None:
    assert labelled(reference="pytorch/pytorch:2.8.0-cuda12.8").status is Status.PASS
    digest = f"me/job@sha256:{'2' * 64}"
    assert labelled(reference=digest).status is Status.SKIP


def test_an_image_that_says_torch_and_has_none() -> None:
    """fastai/docker-containers#42: an image that was named for CUDA held a CPU-only torch."""
    assert labelled(torch=None, labels={"x.torch": "2.8.0"}).status is Status.FAIL
    cpu = labelled(cuda=None, labels={"x.torch": "2.8.0", "x.cuda": "12.8"})
    assert cpu.status is Status.FAIL
    assert "it holds none (a CPU-only build)" in cpu.message


def test_what_is_no_image_has_no_labels() -> None:
    (finding,) = ask(CHECK, environment(), "sm_120")
    assert finding.status is Status.SKIP


def rebuilt(first: str, second: str, *differences: str) -> Finding:
    inventory = held()
    made = replace(inventory.environment, content=second)
    twice = Rebuilt(first=first, differing=len(differences), differences=differences)
    (finding,) = ask(TWICE, replace(inventory, environment=made, rebuilt=twice), "sm_120")
    return finding


def test_two_builds_that_differ_are_an_error_and_never_incompatible() -> None:
    assert rebuilt("sha256:1", "sha256:1").status is Status.PASS
    names = tuple(f"opt/{n}: bytes" for n in range(7))
    finding = rebuilt("sha256:1", "sha256:2", *names)
    assert (finding.status, finding.required) == (Status.ERROR, True)
    assert finding.message == (
        "7 path(s) differ between two builds: opt/0: bytes; opt/1: bytes; opt/2: bytes; "
        "opt/3: bytes; opt/4: bytes; and 2 more"
    )
    assert Verdict.INCONCLUSIVE.exit_code == 11
    (finding,) = ask(TWICE, held(), "sm_120")
    assert (finding.status, finding.required) == (Status.SKIP, False)


# Names and digests (R19b: one tag, another digest)

ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def identified(reference: str, *digests: str) -> list[Finding]:
    made = held(reference=reference)
    assert made.environment is not None
    assert made.environment.image is not None
    image = replace(made.environment.image, digests=digests)
    return ask(CHECK, replace(made, environment=replace(made.environment, image=image)), "sm_120")


def test_an_image_that_is_not_the_pinned_one_fails() -> None:
    pinned, *_ = identified(f"example/job:1@{ONE}", f"example/job@{OTHER}")
    assert (pinned.status, pinned.message) == (
        Status.FAIL,
        f"pinned to {ONE}, but what was looked at is {OTHER}",
    )


def test_a_pinned_image_passes_and_a_tag_is_told_with_its_digest() -> None:
    pinned, *_ = identified(f"example/job@{ONE}", f"example/job@{OTHER}", f"example/job@{ONE}")
    assert (pinned.status, pinned.required) == (Status.PASS, False)
    tagged, *_ = identified("example/job:1", f"example/job@{ONE}")
    assert (tagged.status, tagged.required) == (Status.PASS, False)
    assert f"example/job@{ONE}" in tagged.message


@pytest.mark.parametrize(
    ("reference", "variables", "status"),
    [
        ("example/job:cuda12.8", {}, Status.PASS),
        ("example/job:cu128-py3.11", {}, Status.PASS),
        ("example/job:2.8.0-py311-cuda12.8.1", {}, Status.PASS),
        ("example/job:cuda11.8", {}, Status.WARN),  # TheBlokeAI/dockerLLM#10
        ("example/job:cuda12.4", {"CUDA_VERSION": "12.4.1"}, Status.PASS),  # the base's toolkit
        ("example/job:cuda12.4", {"CUDA_VERSION": "12.1.1"}, Status.WARN),
        ("example/job:py3.10", {}, Status.WARN),
        ("python3.10/job:cu128", {}, Status.PASS),  # the registry's name is none of it
        ("example/happy310:1", {}, Status.SKIP),
        ("example/job:cu1280", {}, Status.SKIP),
    ],
)
def test_cuda_and_python_in_a_name(
    reference: str, variables: dict[str, str], status: Status
) -> None:
    assert labelled(reference=reference, variables=variables).status is status
