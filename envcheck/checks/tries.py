"""What the checks of a tried card share: which cards there are, and why a step says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.checks.check import Check, Question
from envcheck.core.limits import Limits
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.tried import Stopped, Tried

# What another process's memory, and a library that the driver lacks, have nothing to do with
# the card: `card-is-usable` names both.
_NOT_OF_THE_CARD = ("(2)", "(221)")


def with_step(question: Question, check: Check, step: str) -> Iterator[tuple[str, Tried] | Finding]:
    """Yield the name of each card that did a step, and it; of others what is to be said."""
    tried = question.machine.tried if question.machine is not None else ()
    if not tried:
        yield check.skip("card", question.why_not_looked("tried"))
    for subject, card in named(tried):
        stopped = next((s for s in card.stopped if s.step == step), None)
        if getattr(card, step) is not None:
            yield subject, card
        elif stopped is not None:
            yield of_stopped(check, subject, stopped)
        else:
            yield check.skip(subject, card.left.get(step, "it was not done"))


def named(tried: Sequence[Tried]) -> Iterator[tuple[str, Tried]]:
    """Yield a name for each card, as the other checks of cards name it, and the card."""
    for number, card in enumerate(tried):
        yield f"card {number} ({card.name or 'a card without a name'})", card


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


def limits(question: Question, tried: Tried) -> Limits | None:
    """Return the maker's numbers for a card; None for a slice and for another product."""
    return None if tried.uuid.startswith("MIG-") else question.limits_of(tried.name)
