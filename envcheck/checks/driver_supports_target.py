"""The driver is new enough for the card, the CUDA runtime and the PTX that it must compile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.checks.check import Check, Question
from envcheck.core import coverage, cuda
from envcheck.core.cuda import Version
from envcheck.core.model import Domain, Finding, Json, Status

_CUDART = re.compile(r"libcudart\.so\.(\d{2})")


@dataclass(frozen=True, slots=True)
class _Need:
    """One reason for a least driver."""

    driver: Version
    why: str


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
        yield CHECK.finding(
            subject,
            Status.FAIL,
            f"too old: {most.why} needs {least}",
            remedy=f"use a host with driver {least} or newer",
            domain=Domain.HOST,
            evidence=evidence,
        )


def _needs(question: Question) -> list[_Need]:
    needs = []
    branch = cuda.driver_of_sm(question.sm)
    if branch is not None:
        needs.append(_Need(branch, f"the first driver branch that knows {question.sm}"))
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
        "the card. With --driver it is a test, without it the answer is the least driver."
    ),
    remedy="Use a host with a newer driver, or packages built with an older CUDA.",
    run=_run,
)
