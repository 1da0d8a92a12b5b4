"""CUDA starts on this machine, and shows a card."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.unusable import unusable


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    if machine is None:
        yield CHECK.skip("driver", question.why_not_looked("cards"))
        return
    cards, cause = machine.cards, unusable(machine.cards)
    told = cards.driver
    evidence: dict[str, Json] = {
        "cuInit": told.init if told is not None else None,
        "module": cards.module,
        "flavour": machine.managed.flavour if machine.managed is not None else None,
        "nodes": cards.nodes,
        "CUDA_VISIBLE_DEVICES": cards.visible,
    }
    if cause is not None:
        # What the job's own variables or image do is no reason to give the machine back.
        status = Status.FAIL if cause.domain in (Domain.HOST, Domain.CARD) else Status.ERROR
        yield CHECK.finding("driver", status, cause.message, remedy=cause.remedy,
                            domain=cause.domain, evidence=evidence)  # fmt: skip
        return
    count = len(told.cards) if told is not None else 0
    cuda = told.cuda if told is not None else None
    message = f"CUDA {cuda or 'of an untold version'} starts and shows {count} card(s)"
    yield CHECK.finding("driver", Status.PASS, message, domain=Domain.HOST, evidence=evidence)


CHECK = Check(
    id="driver-starts",
    claim="CUDA starts on this machine and shows a card.",
    how=(
        "Asks libcuda to start and for its cards, in a process of its own, and decodes what it "
        "answers: a stub, a driver older than the card, kernel module and library of different "
        "versions, a forward-compatibility library, a fabric manager that does not run, device "
        "nodes that a container was not given. It fails where that is the machine's fault; what "
        "variables or the image do is an error, which leaves the machine unjudged."
    ),
    classes=("E1", "E3", "E4", "F2"),
    remedy="Follow the finding: it says whose fault it is, and by which command it goes away.",
    runs=("machine",),
    run=_run,
)
