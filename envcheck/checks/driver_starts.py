"""CUDA starts on this machine, shows a card, and lets processes use it."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import shown_cards
from envcheck.checks.check import Check, Question
from envcheck.core.machine import Machine
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.unusable import unusable

_FINDS_NONE = (0, 100, 101)
"""What cuInit answers where it finds no card, as one that its kernel module does not take."""


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    if machine is None:
        yield CHECK.skip("driver", question.why_not_looked("cards"))
        return
    cards, cause = machine.cards, unusable(machine.cards)
    told, managed = cards.driver, machine.managed
    evidence: dict[str, Json] = {
        "cuInit": told.init if told is not None else None,
        "module": cards.module,
        "flavour": managed.flavour if managed is not None else None,
        "nodes": cards.nodes,
        "CUDA_VISIBLE_DEVICES": cards.visible,
    }
    if cause is not None:
        # What the job's own variables or image do is no reason to give the machine back.
        status = Status.FAIL if cause.domain in (Domain.HOST, Domain.CARD) else Status.ERROR
        remedy = cause.remedy
        if told is not None and told.init in _FINDS_NONE and evidence["flavour"] == "proprietary":
            remedy += "; from Blackwell on cards need the open one, and this one is not"
        yield CHECK.finding("driver", status, cause.message, remedy=remedy,
                            domain=cause.domain, evidence=evidence)  # fmt: skip
        return
    closed = list(_of_modes(machine, evidence))
    yield from closed
    if closed:
        return
    count = len(told.cards) if told is not None else 0
    cuda = told.cuda if told is not None else None
    message = f"CUDA {cuda or 'of an untold version'} starts and shows {count} card(s)"
    yield CHECK.finding("driver", Status.PASS, message, domain=Domain.HOST, evidence=evidence)


def _of_modes(machine: Machine, evidence: dict[str, Json]) -> Iterator[Finding]:
    """Name cards that the host lets nobody use, or one process at a time (cuda.h, of error 46)."""
    for card in shown_cards.shown(machine):
        mode = card.device.compute_mode if card.device is not None else None
        if card.device is None or mode in (None, "default"):
            continue
        status = Status.FAIL if mode == "prohibited" else Status.WARN
        lets = "no process" if mode == "prohibited" else "one process at a time"
        message = f"the host lets {lets} use it: compute mode {mode}"
        yield CHECK.finding(card.label, status, message, domain=Domain.HOST, evidence=evidence,
                            remedy=f"nvidia-smi -i {card.device.index} -c DEFAULT on the host")  # fmt: skip


CHECK = Check(
    id="driver-starts",
    claim="CUDA starts on this machine, shows a card, and lets processes use it.",
    how=(
        "Asks libcuda to start and for its cards, in a process of its own, and decodes what it "
        "answers: a stub, a driver older than the card, kernel module and library of different "
        "versions, a forward-compatibility library, a fabric manager that does not run, device "
        "nodes that a container was not given; and NVML for the compute mode of the cards. It fails where that is the machine's fault; what "
        "variables or the image do is an error, which leaves the machine unjudged."
    ),
    classes=("E1", "E3", "E4", "F2"),
    remedy="Follow the finding: it says whose fault it is, and by which command it goes away.",
    runs=("machine",),
    run=_run,
)
