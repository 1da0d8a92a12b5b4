"""The card's memory holds what is written to it."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import tries
from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.tried import Held, Mismatch, Pass

_HALF = 0.5
"""Of the card: with less of it tested, most cells were not looked at."""
_WORD = 8
_ALL = (1 << 64) - 1


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    for subject, card in tries.named(machine.tried if machine is not None else ()):
        # The first step is nobody else's.
        for stopped in card.stopped:
            if stopped.step == "start":
                yield tries.of_stopped(CHECK, subject, stopped)
    for item in tries.with_step(question, CHECK, "held"):
        if isinstance(item, Finding):
            yield item
        elif (held := item[1].held) is not None:
            yield _judge(item[0], held, on_chip=question.sm.is_on_chip)


def _judge(subject: str, held: Held, *, on_chip: bool) -> Finding:
    evidence = _facts(held)
    if not held.passes:
        return CHECK.skip(subject, held.left or "no pattern was written")
    bad = next((p for p in held.passes if p.wrong), None)
    if bad is not None:
        message = f"memory does not hold what is written: {_of_pass(bad, held)}"
        remedy = "give the machine back: this card spoils results without a word"
        return CHECK.finding(subject, Status.FAIL, message, remedy=remedy, domain=Domain.CARD,
                             evidence=evidence)  # fmt: skip
    share = held.tested / held.total
    message = (
        f"{held.tested / 1e9:.1f} of {held.total / 1e9:.1f} GB ({share:.0%}) held"
        f" {len(held.passes)} patterns"
    )
    if held.left:
        message += f"; {held.left}"
    if share < _HALF and on_chip:
        message += "; it is the host's own memory, of which the rest was left to its programs"
    elif share < _HALF:
        message += "; the rest was taken by others and is not known"
        remedy = "end what is on the card (nvidia-smi), then try it again"
        return CHECK.finding(subject, Status.WARN, message, remedy=remedy, domain=Domain.HOST,
                             evidence=evidence)  # fmt: skip
    return CHECK.finding(subject, Status.PASS, message, domain=Domain.CARD, evidence=evidence)


def _of_pass(bad: Pass, held: Held) -> str:
    words = f"{bad.wrong} word(s) of 8 bytes in {held.tested / 1e9:.1f} GB, pattern {bad.pattern}"
    if not bad.first:
        return words
    first = bad.first[0]
    said = f"{words}; at {first.offset:#x} {first.expected} was written and {first.found} found"
    cell = _cell(first, held)
    if bad.pattern == "address" and cell is not None:
        return f"{said}, which was written to {cell:#x}: two addresses are one cell"
    return f"{said} (bits {bad.bits})"


def _cell(first: Mismatch, held: Held) -> int | None:
    """Return which other cell's address was found in a cell; None where it is none.

    A bit that is stuck makes another address of one as well, but it does so to the address or to
    its complement, never to both.
    """
    turned = f"{int(first.found, 16) ^ _ALL:#018x}"
    again = (m for p in held.passes if p.pattern == "address, turned over" for m in p.first)
    both = any(m.offset == first.offset and m.found == turned for m in again)
    return int(first.found, 16) * _WORD if both else None


def _facts(held: Held) -> dict[str, Json]:
    return {
        "total_bytes": held.total,
        "tested_bytes": held.tested,
        "patterns": tuple(p.pattern for p in held.passes),
        "wrong_words": {f"{p.pattern}, {p.seed}": p.wrong for p in held.passes if p.wrong},
        "bits": tuple(p.bits for p in held.passes if p.wrong),
        "seconds": round(sum(p.seconds for p in held.passes), 3),
    }


CHECK = Check(
    id="device-memory-holds-what-is-written",
    claim="The card's memory holds what is written to it.",
    how=(
        "Writes a pattern to nearly all memory of the card that is free, then compares all of it: "
        "own addresses, so that two addresses which are one cell show, random words and their "
        "complement, a bit that walks through zeros and one through ones. Memory with ECC "
        "corrects single bits by itself: its counters tell of those."
    ),
    classes=("K",),
    remedy="Give the machine back; a card that forgets spoils results without a word.",
    runs=("machine",),
    run=_run,
)
