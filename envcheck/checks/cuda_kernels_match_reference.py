"""Each CUDA C++ kernel that was built, launched on the card, gives what float64 gives."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import ran
from envcheck.checks.check import Check, Question
from envcheck.core.model import Finding


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None:
        yield CHECK.skip("kernels", question.why_not_executed)
        return
    groups = list(ran.of_part(executed, "cuda"))
    if not groups:
        yield CHECK.skip("kernels", "no CUDA C++ kernel was asked for")
        return
    yield from (ran.judge(CHECK, question, name, runs) for name, runs in groups)


CHECK = Check(
    id="cuda-kernels-match-reference",
    claim="Each CUDA C++ kernel that was built here gives on the card what float64 gives.",
    how=(
        "Loads the extension that nvcc built, launches its kernel in each dtype at sizes with "
        "tails, and compares as for operations. Where nothing could be built that is said."
    ),
    classes=("I1",),
    remedy="Correct the kernel, or build it for the card's own architecture.",
    runs=("cuda",),
    run=_run,
)
