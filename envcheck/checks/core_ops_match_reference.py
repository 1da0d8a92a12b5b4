"""PyTorch's operations, run on the card, give what float64 gives."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import ran
from envcheck.checks.check import Check, Question
from envcheck.core.model import Assurance, Domain, Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None:
        yield CHECK.skip("operations", question.why_not_executed)
        return
    if "ops" not in executed.parts:
        yield CHECK.skip("operations", "were not asked for")
        return
    groups = list(ran.of_part(executed, "ops"))
    if not groups:
        message = f"nothing ran: {executed.message or executed.outcome.status}"
        yield CHECK.finding("operations", Status.ERROR, message, domain=Domain.ENVCHECK)
        return
    yield from (ran.judge(CHECK, question, op, runs) for op, runs in groups)


CHECK = Check(
    id="core-ops-match-reference",
    claim="PyTorch's operations, forward and backward, give on the card what float64 gives.",
    how=(
        "Runs each operation in each dtype that the card has, with fresh random operands and "
        "with patterns whose result is known, at odd sizes, tails, layouts and the sizes of your "
        "job, in processes of their own; fills the memory of outputs with NaN before. The error "
        "of every element is measured in units of a bound that follows from dtype and length of "
        "the sum (Higham); exact results must be exact."
    ),
    classes=("D1", "H1", "H2", "I1"),
    remedy="Try another card of the kind; if it fails there too, install another PyTorch.",
    assurance=Assurance.EXECUTED,
    runs=("ops",),
    run=_run,
)
