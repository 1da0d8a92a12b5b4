"""A call that is done has given the card's memory back, but for its outputs."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import ran
from envcheck.checks.card_is_usable import OWN
from envcheck.checks.check import Check, Question
from envcheck.core.executed import Executed, Run
from envcheck.core.model import Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None:
        yield CHECK.skip("memory", question.why_not_executed)
        return
    known = [r for r in executed.runs if r.retained is not None]
    if not known:
        yield CHECK.skip("memory", "no run says what it kept")
        return
    leaking: dict[str, list[Run]] = {}
    for run in known:
        if run.retained:
            leaking.setdefault(run.op, []).append(run)
    for op, runs in leaking.items():
        worst = max(runs, key=lambda r: r.retained or 0)
        message = (
            f"{ran.label(worst)}: every call keeps {worst.retained} bytes of the card's memory"
        )
        remedy = f"pip install --upgrade {worst.family}" if worst.part == "extensions" else ""
        evidence = {ran.label(r): r.retained for r in runs}
        status = Status.WARN if _is_shared(executed) else Status.FAIL
        yield CHECK.finding(op, status, message, remedy=remedy, domain=ran.domain(worst),
                            evidence=evidence)  # fmt: skip
    if not leaking:
        message = f"{len(known)} runs kept nothing"
        yield CHECK.finding("memory", Status.PASS, message, evidence={"runs": len(known)})


def _is_shared(executed: Executed) -> bool:
    """Say whether others are on the card, whose memory grows for reasons of their own."""
    card = executed.card
    return card is not None and card.total_memory - card.free_memory > OWN


CHECK = Check(
    id="device-memory-is-returned",
    claim="Calls give the card's memory back, but for their outputs.",
    how=(
        "Calls everything three times more and counts the bytes that PyTorch's allocator holds "
        "before and after, and those that nothing of PyTorch's holds: what grows in each of the "
        "calls is lost for good. Where others are on the card it is a warning."
    ),
    classes=("G2",),
    remedy="Update what leaks; a job of hours ends for lack of memory.",
    runs=("ops",),
    run=_run,
)
