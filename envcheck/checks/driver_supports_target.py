"""The driver is new enough for the card, the CUDA runtime and the PTX that it must compile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.checks.check import Check, Question
from envcheck.core import coverage, cuda, nvidia_require
from envcheck.core.cuda import Version
from envcheck.core.model import Domain, Finding, Json, Status

# What the forward compatibility page of NVIDIA's CUDA compatibility guide allows: data-centre cards
# (and some RTX boards, which are not told apart here). sm_89 and sm_120 are GeForce's too.
_DATA_CENTRE = frozenset(
    {"sm_70", "sm_80", "sm_90", "sm_100", "sm_103", "t4", "a10", "a100", "l4", "l40s", "h100",
     "h200", "b200"}
)  # fmt: skip
_CUDART = re.compile(r"libcudart\.so\.(\d{2})")


@dataclass(frozen=True, slots=True)
class _Need:
    """One reason for a least driver."""

    driver: Version
    why: str
    of_card: bool = False
    """Whether the card asks for it, whatever is installed."""


def _run(question: Question) -> Iterator[Finding]:
    last = cuda.LAST_BRANCH_BELOW_SM_75
    if question.driver is not None and question.sm.silicon < 75 and question.driver[0] > last:
        yield CHECK.finding(
            f"driver {cuda.driver_text(question.driver)}",
            Status.FAIL,
            f"too new: branch {last} is the last that supports {question.sm}",
            remedy=f"use a host with a driver of branch {last}",
            domain=Domain.HOST,
        )
        return
    needs = _needs(question)
    if not needs:
        yield CHECK.skip("driver", "nothing that was looked at says which driver it needs")
        return
    yield from _of_gate(question, needs)
    most = max(needs, key=lambda need: need.driver)
    least = cuda.driver_text(most.driver)
    evidence: dict[str, Json] = {
        "least_driver": least,
        "needs": tuple({"driver": cuda.driver_text(n.driver), "why": n.why} for n in needs),
    }
    subject = "driver" if question.driver is None else f"driver {cuda.driver_text(question.driver)}"
    if question.driver is None:
        yield CHECK.finding(
            subject,
            Status.PASS,
            f"{least} is the least that would do: {most.why}",
            domain=Domain.HOST,
            evidence=evidence,
        )
    elif question.driver >= most.driver:
        yield CHECK.finding(
            subject,
            Status.PASS,
            f"new enough ({least} would do: {most.why})",
            domain=Domain.HOST,
            evidence=evidence,
        )
    else:
        status, more = _forward(question, most)
        yield CHECK.finding(
            subject,
            status,
            f"too old: {most.why} needs {least}{more}",
            remedy=f"use a host with driver {least} or newer",
            domain=Domain.HOST,
            evidence=evidence,
        )


def _forward(question: Question, most: _Need) -> tuple[Status, str]:
    """Say what a package for forward compatibility in the image changes in a driver's answer."""
    environment = question.inventory.environment
    compat = [
        version for version in (environment.compat if environment is not None else ())
        if not most.of_card and cuda.parse_version(version) >= most.driver
    ]  # fmt: skip
    if not compat:
        return Status.FAIL, ""
    if str(question.sm) in _DATA_CENTRE or question.target.name in _DATA_CENTRE:
        return Status.WARN, f"; only forward compatibility helps (cuda-compat {compat[0]} is there)"
    if question.target.name.startswith(("rtx-3", "rtx-4", "rtx-5")):
        more = f"; cuda-compat {compat[0]} is there, but GeForce cards refuse it (error 804)"
        return Status.FAIL, more
    return Status.FAIL, f"; cuda-compat {compat[0]} is there, but only data-centre cards take it"


def _of_gate(question: Question, needs: list[_Need]) -> Iterator[Finding]:
    """Compare what the image asks of a host with what its content needs."""
    environment = question.inventory.environment
    image = environment.image if environment is not None else None
    text = image.variables.get("NVIDIA_REQUIRE_CUDA", "") if image is not None else ""
    if image is None or environment is None or not text.strip():
        return
    if image.variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true", "all", "yes"):
        return
    gate, subject = nvidia_require.parse(text), f"NVIDIA_REQUIRE_CUDA={text[:60]}"
    if gate is None:
        return  # the runtime has conditions that no document names
    if question.driver is not None and nvidia_require.admits(gate, question.driver) is False:
        yield CHECK.finding(
            subject,
            Status.FAIL,
            f"the container runtime refuses to start it with driver "
            f"{cuda.driver_text(question.driver)}",
            remedy="use a host with a newer driver, or set NVIDIA_DISABLE_REQUIRE=1 when it is"
            " started if nothing in it needs that CUDA",
            domain=Domain.IMAGE,
        )
    # A host that has the card has a driver that knows it: that need is none of the image's.
    own = [need for need in needs if not need.of_card]
    most = max(own, key=lambda need: need.driver, default=None)
    least = nvidia_require.least_driver(gate)
    if most is not None and least is not None and most.driver > least and not environment.compat:
        yield CHECK.finding(
            subject,
            Status.WARN,
            f"lets it start with driver {cuda.driver_text(least)}, but {most.why} needs "
            f"{cuda.driver_text(most.driver)}",
            remedy=f"ENV NVIDIA_REQUIRE_CUDA=driver>={cuda.driver_text(most.driver)}",
            domain=Domain.IMAGE,
        )


def _needs(question: Question) -> list[_Need]:
    needs = []
    branch = cuda.driver_of_sm(question.sm)
    if branch is not None:
        why = f"the first driver branch that knows {question.sm}"
        needs.append(_Need(branch, why, of_card=True))
    known = question.roles
    # Of variants for several CUDA versions, only the one that is loaded has a floor to keep.
    files = [
        f
        for f in question.inventory.files
        if f.path in known and known[f.path].required and not known[f.path].alternative
    ]
    majors = {int(m[1]): f.path for f in files for n in f.needed if (m := _CUDART.match(n))}
    for file in files:
        # No libcudart is needed and device code is there: the runtime is linked in (nvcc's
        # default), and it is of the toolkit that made the code.
        if file.toolkit is not None and file.format in ("shared-object", "executable"):
            majors.setdefault(int(file.toolkit.partition(".")[0]), file.path)
    environment = question.inventory.environment
    if environment is not None and environment.torch is not None and environment.torch.cuda:
        torch = environment.torch
        majors = {int((torch.cuda or "0").partition(".")[0]): f"torch {torch.version}"}
    for major, who in sorted(majors.items()):
        if major in cuda.MAJOR_DRIVER:
            needs.append(_Need(cuda.MAJOR_DRIVER[major], f"CUDA {major} ({who})"))
    for file in files:
        found = coverage.of_file(file, question.sm, None)
        if found.mode == coverage.JIT and found.least_driver is not None:
            needs.append(_Need(found.least_driver, f"the PTX of {file.path}"))
    return needs


CHECK = Check(
    id="driver-supports-target",
    claim="The driver is new enough for the card, the CUDA runtime and PTX left to compile.",
    how=(
        "Takes the highest of: the first driver branch that knows the SM (no branch after 580 "
        "knows one below sm_75); the floor of the CUDA "
        "major that torch (or a scanned library, which may have its runtime linked in) is built "
        "with, by minor-version compatibility; "
        "and the driver whose compiler takes the PTX ISA of files that have nothing but PTX for "
        "the card. With --driver it is a test, without it the answer is the least driver. A "
        "package for forward compatibility in the image (cuda-compat) helps data-centre cards alone: "
        "GeForce cards answer with error 804. What an image asks of its host "
        "(NVIDIA_REQUIRE_CUDA) is compared too: whether the runtime would refuse that driver, and "
        "whether it lets in hosts whose driver is too old for the content. Classes E1, E2, E3."
    ),
    classes=("A5", "E1", "E2", "E3"),
    remedy="Use a host with a newer driver, or packages built with an older CUDA.",
    run=_run,
)
