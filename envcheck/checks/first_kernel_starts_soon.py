"""The first kernel starts soon: nothing is compiled for minutes before a job can begin."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import ran
from envcheck.checks.check import Check, Question
from envcheck.core.model import Finding, Status
from envcheck.core.torch_releases import install_command

_LONG = 60.0
"""Seconds: users report a JIT of minutes, and loading machine code takes a few seconds."""


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None or executed.card is None or executed.card.first_kernel is None:
        yield CHECK.skip("first kernel", question.why_not_executed if executed is None
                         else "its time is not known")  # fmt: skip
        return
    seconds = executed.card.first_kernel
    evidence = {"seconds": seconds}
    if seconds > _LONG:
        message = f"the first kernel took {seconds:.0f} s: the driver compiles PTX for the card"
        remedy = install_command(question.sm)
        yield CHECK.finding("first kernel", Status.WARN, message, remedy=remedy, evidence=evidence)
    else:
        message = f"{seconds:.1f} s"
        yield CHECK.finding("first kernel", Status.PASS, message, evidence=evidence)
    for run in executed.runs:
        if run.first is not None and run.first > _LONG * 1000:
            message = f"{ran.label(run)}: its first call took {run.first / 1000:.0f} s"
            yield CHECK.finding(
                run.op, Status.WARN, message, evidence={"seconds": run.first / 1000}
            )


CHECK = Check(
    id="first-kernel-starts-soon",
    claim="The first kernel runs within a minute of the start of a process.",
    how="Measures the time from the driver's start to the end of the first kernel, and first calls.",
    classes=("I2",),
    remedy="Install a build that holds machine code for the card.",
    runs=("ops",),
    run=_run,
)
