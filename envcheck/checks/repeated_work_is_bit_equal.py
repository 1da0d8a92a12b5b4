"""A card at full work keeps giving the same bits, and the right ones."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import multiplied
from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.rated import Burn, label


def _run(question: Question) -> Iterator[Finding]:
    rated = multiplied.rated(question)
    if rated is None:
        yield CHECK.skip("burn", multiplied.why_not(question))
        return
    told = [_judge(burn) for burn in rated.burns]
    told += multiplied.troubles(CHECK, rated, burn=True)
    before = f": {', '.join(rated.failed)} failed before it" if rated.failed else ""
    yield from told or [CHECK.skip("burn", f"nothing was repeated{before}")]


def _judge(burn: Burn) -> Finding:
    evidence: dict[str, Json] = {
        "size": burn.size,
        "repetitions": burn.repetitions,
        "seconds": burn.seconds,
        "mismatches": burn.mismatches,
        "rows": burn.rows,
        "worst": burn.worst,
    }
    name = label(f"{multiplied.BURN}{burn.dtype}", burn.card)
    if burn.first is not None:
        first = burn.first
        evidence |= {
            "first": first.repetition,
            "elements": first.elements,
            "positions": first.positions,
            "expected": first.expected,
            "found": first.found,
            "flipped": first.flipped,
        }
    if burn.mismatches:
        return _wrong(name, f"{_differing(burn)}: the card computes wrong numbers", evidence)
    if burn.worst is None or burn.worst > 1:
        what = "NaN or infinity" if burn.worst is None else (
            f"{burn.worst:.3g} times as far off as rounding explains"
        )  # fmt: skip
        return _wrong(name, f"each product is wrong in the same way: {what}", evidence)
    message = f"{burn.repetitions} products in {burn.seconds:.1f} s, all with the bits of the first"
    return CHECK.finding(name, Status.PASS, message, domain=Domain.CARD, evidence=evidence)


def _wrong(name: str, message: str, evidence: dict[str, Json]) -> Finding:
    return CHECK.finding(
        name,
        Status.FAIL,
        message,
        remedy=multiplied.GIVE_BACK,
        domain=Domain.CARD,
        evidence=evidence,
    )


def _differing(burn: Burn) -> str:
    said = f"{burn.mismatches} of {burn.repetitions} products of the same operands differ"
    if burn.first is None or not burn.first.positions:
        return said
    first = burn.first
    return (
        f"{said}, first number {first.repetition} in {first.elements} element(s)"
        f" ({first.found[0]} instead of {first.expected[0]} at {first.positions[0]})"
    )


CHECK = Check(
    id="repeated-work-is-bit-equal",
    claim="A card at full work gives the same bits again and again, and the right ones.",
    how=(
        "Repeats one large product in bf16 and one in fp32 for seconds (minutes with --full), and "
        "compares every result with the first bit by bit on the card; of the first, rows all over "
        "it are compared with float64."
    ),
    classes=("I1", "K"),
    remedy="Give the machine back: a card that computes wrong numbers spoils a job without a word.",
    runs=("machine",),
    run=_run,
)
