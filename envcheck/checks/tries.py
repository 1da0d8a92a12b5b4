"""What the checks of a tried card share: which cards there are, and why a step says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.limits import Limits
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.tried import Stopped, Tried

# What another process's memory, and a library that the driver lacks, have nothing to do with
# the card: `card-is-usable` names both.
_NOT_OF_THE_CARD = ("(2)", "(221)")


def with_step(question: Question, check: Check, step: str) -> Iterator[Tried | Finding]:
    """Yield each card that did a step, and of every other one what is to be said."""
    machine = question.machine
    if machine is None or not machine.tried:
        yield check.skip("card", question.why_not_looked("tried"))
        return
    for number, tried in enumerate(machine.tried):
        if getattr(tried, step) is not None:
            yield tried
            continue
        stopped = next((s for s in tried.stopped if s.step == step), None)
        if stopped is None:
            yield check.skip(label(tried, number), tried.left.get(step, "it was not done"))
        else:
            yield of_stopped(check, label(tried, number), stopped)


def of_stopped(check: Check, subject: str, stopped: Stopped) -> Finding:
    """Judge a card that ended a step before its time."""
    if stopped.error.endswith(_NOT_OF_THE_CARD):
        return check.skip(subject, stopped.error)
    if stopped.hung:
        message = f"did not answer: {stopped.error}"
    else:
        message = f"the card failed while it was tried: {stopped.error}"
    remedy = "give the machine back; on your own: nvidia-smi -q, dmesg | grep -i xid, and a reboot"
    return check.finding(subject, Status.FAIL, message, remedy=remedy, domain=Domain.CARD,
                         evidence={"step": stopped.step, "error": stopped.error})  # fmt: skip


def label(tried: Tried, number: int) -> str:
    """Name a card so that two of one product are told apart."""
    return f"{tried.name} {number}".strip() if tried.name else f"card {number}"


def of(question: Question, tried: Tried) -> str:
    """Name a card among those of the machine."""
    machine = question.machine
    number = machine.tried.index(tried) if machine is not None else 0
    return label(tried, number)


def limits(question: Question, tried: Tried) -> Limits | None:
    """Return the maker's numbers for a card; None for a slice and for another product."""
    target = question.target
    if tried.uuid.startswith("MIG-") or (target.card is not None and tried.name != target.card):
        return None
    return target.limits
