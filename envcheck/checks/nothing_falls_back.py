"""What ran was run by the card, and said nothing about doing something else instead."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import ran
from envcheck.checks.check import Check, Question
from envcheck.core.executed import Executed, Run
from envcheck.core.model import Finding, Status

_COPIES = ("Memcpy", "Memset")
"""How the profiler names what only moves bytes."""


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None:
        yield CHECK.skip("runs", question.why_not_executed)
        return
    done = [r for r in executed.runs if r.outcome.ok]
    if not done:
        yield CHECK.skip("runs", "nothing was run")
        return
    found = [*_elsewhere(done), *_without_kernels(done), *_warned(executed)]
    yield from found
    if not any(f.status is Status.FAIL for f in found):
        watched = sum(r.watched for r in done)
        message = f"all outputs of {len(done)} runs are on the card; kernels of {watched} seen"
        yield CHECK.finding("runs", Status.PASS, message, evidence={"runs": len(done)})


def _elsewhere(done: list[Run]) -> Iterator[Finding]:
    """Yield what left its outputs where the operands were not."""
    told = set()
    for run in done:
        where = {o.device for o in run.outputs} - {"cuda"}
        if where and run.op not in told:
            told.add(run.op)
            message = (
                f"{ran.label(run)}: its output is on {', '.join(sorted(where))}, not on the card"
            )
            yield CHECK.finding(run.op, Status.FAIL, message, domain=ran.domain(run),
                                remedy="install a build with CUDA for it")  # fmt: skip


def _without_kernels(done: list[Run]) -> Iterator[Finding]:
    """Yield what started no kernel, though operands were on the card.

    Where the profiler saw no kernel of anything it may not look, which says nothing.
    """
    watched = [r for r in done if r.watched]
    if not any(r.kernels for r in watched):
        reason = "the profiler saw no kernel at all" if watched else "no kernel was looked for"
        yield CHECK.skip("kernels", reason)
        return
    told = set()
    for run in watched:
        computing = [k for k in run.kernels if not k.startswith(_COPIES)]
        if not computing and run.op not in told:
            told.add(run.op)
            message = f"{ran.label(run)}: no kernel ran on the card: it was computed elsewhere"
            yield CHECK.finding(run.op, Status.FAIL, message, domain=ran.domain(run),
                                remedy="install a build with CUDA for it",
                                evidence={"kernels": run.kernels})  # fmt: skip


def _warned(executed: Executed) -> Iterator[Finding]:
    """Yield what was said about falling back, once for each operation or family."""
    told = set()
    for run in executed.runs:
        if run.warnings and run.op not in told:
            told.add(run.op)
            yield CHECK.finding(run.op, Status.WARN, run.warnings[0], domain=ran.domain(run),
                                evidence={"warnings": run.warnings})  # fmt: skip
    for group in executed.groups:
        if group.warnings:
            yield CHECK.finding(group.family, Status.WARN, group.warnings[0],
                                evidence={"warnings": group.warnings})  # fmt: skip


CHECK = Check(
    id="nothing-falls-back",
    claim="What was called ran on the card, by kernels, and fell back to nothing else.",
    how=(
        "Looks where each output lies; has the profiler name the kernels of matrix products, "
        "attention and extensions; and keeps warnings and log lines that speak of falling back, "
        "skipping, or not recognizing something."
    ),
    classes=("H1", "I2"),
    remedy="Install what the warning misses, or a build with CUDA.",
    runs=("ops",),
    run=_run,
)
