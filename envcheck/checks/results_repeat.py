"""Two calls with the same operands give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import ran
from envcheck.checks.check import Check, Question
from envcheck.core.executed import Run
from envcheck.core.model import Domain, Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None:
        yield CHECK.skip("results", question.why_not_executed)
        return
    twice = [r for r in executed.runs if any(o.same_again is not None for o in r.outputs)]
    if not twice:
        yield CHECK.skip("results", "nothing was run twice")
        return
    differing: dict[str, list[Run]] = {}
    by_design = 0
    for run in twice:
        if any(o.same_again is False for o in run.outputs):
            by_design += not run.deterministic
            if run.deterministic:
                differing.setdefault(run.op, []).append(run)
    for op, runs in differing.items():
        first = runs[0]
        of_torch = first.part == "ops"
        message = f"{ran.label(first)}: two calls with the same operands gave different bytes"
        message += f" (and {len(runs) - 1} more)" if len(runs) > 1 else ""
        yield CHECK.finding(
            op,
            Status.FAIL if of_torch else Status.WARN,
            message,
            remedy="look for a race, or for memory that is read before it is written",
            domain=Domain.PACKAGE if first.part in ("ops", "extensions") else Domain.KERNEL,
            evidence={"runs": tuple(map(ran.label, runs))},
        )
    same = len(twice) - sum(map(len, differing.values())) - by_design
    message = f"{same} of {len(twice)} runs gave the same bytes twice"
    message += f"; {by_design} sum in any order by design, and did not" if by_design else ""
    evidence = {"runs": len(twice), "same": same, "by_design": by_design}
    yield CHECK.finding("results", Status.PASS, message, evidence=evidence)


CHECK = Check(
    id="results-repeat",
    claim="Two calls with the same operands give the same bytes, but where sums come in any order.",
    how=(
        "Calls everything twice and compares the outputs byte by byte. PyTorch documents which "
        "operations sum by atomics; of others a difference is a race or memory that nothing wrote. "
        "Of kernels and extensions, which document no such thing, it is a warning."
    ),
    classes=("I1",),
    remedy="Look for a race, or for memory that is read before it is written.",
    runs=("ops",),
    run=_run,
)
