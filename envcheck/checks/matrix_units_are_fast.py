"""The card multiplies about as fast as its maker says that it can."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import multiplied
from envcheck.checks.check import Check, Question
from envcheck.core.limits import Limits
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.rated import Rate, label

# What healthy cards gave of the rate that their maker states, at least. Above 75 W: 0.66, by an
# H100 PCIe, 499.5 of 756 (mag-/gpu_benchmark, README); others there and in stas00/ml-engineering
# (compute/accelerator, "Maximum Achievable Matmul FLOPS") lie between 0.70 and 1.08, those of
# fp8 between 0.71 and 0.78. Such a table has the best of many sizes, and here it is one size.
_HEALTHY = 0.66
# A T4 of 70 W gave 24 of 65, which its maker calls expected: power bounds it (NVIDIA developer
# forums, topic 264462).
_HEALTHY_OF_SMALL = 0.37
_SMALL = 75.0
"""Watt: what a slot of PCI Express gives, and cards without a connector of their own live on."""
# Of those: what is less than the first share is worth a question, what is less than the second
# no size, no heat and no lottery of chips explains.
_WARN, _FAIL = 2 / 3, 1 / 3


def _run(question: Question) -> Iterator[Finding]:
    rated = multiplied.rated(question)
    if rated is None:
        yield CHECK.skip("rates", multiplied.why_not(question))
        return
    told = [_judge(rate, question) for rate in rated.rates]
    told += multiplied.troubles(CHECK, rated, burn=False)
    yield from told or [CHECK.skip("rates", "nothing was multiplied")]


def _judge(rate: Rate, question: Question) -> Finding:
    limits, why_unknown = _limits(rate, question)
    subject, known = label(rate.dtype, rate.card), {}
    if limits is not None:
        # With sums in fp32, as PyTorch has them, fp16 runs at the rate of bf16 on all of these.
        known = {"bf16": limits.bf16, "fp16": limits.bf16, "fp8": limits.fp8}
    limit = known.get(rate.dtype)
    evidence: dict[str, Json] = {
        "tflops": rate.tflops,
        "tflops_at_first": rate.tflops_at_first,
        "size": rate.size,
        "milliseconds": rate.milliseconds,
        "repetitions": rate.repetitions,
        "clock_mhz": rate.clock,
        "limit_tflops": limit,
    }
    measured = f"{rate.tflops:.4g} TFLOP/s" + (f" at {rate.clock} MHz" if rate.clock else "")
    if limits is None or limit is None:
        why = why_unknown or f"no limit of {rate.dtype} is known for this card"
        return CHECK.finding(subject, Status.PASS, f"{measured}; {why}",
                             domain=Domain.CARD, evidence=evidence)  # fmt: skip
    share = rate.tflops / limit
    evidence |= {"share": round(share, 4), "source": limits.source}
    healthy = _HEALTHY_OF_SMALL if (limits.power or _SMALL + 1) <= _SMALL else _HEALTHY
    message = f"{measured}, {share:.0%} of {limit:.4g}"
    if share >= _WARN * healthy:
        return CHECK.finding(subject, Status.PASS, message, domain=Domain.CARD,
                             evidence=evidence)  # fmt: skip
    return CHECK.finding(
        subject,
        Status.FAIL if share < _FAIL * healthy else Status.WARN,
        f"{message}; healthy cards give {healthy:.0%} and more",
        remedy="nvidia-smi -q -d PERFORMANCE,POWER,CLOCK,TEMPERATURE says what holds it back",
        domain=Domain.CARD,
        evidence=evidence,
    )


def _limits(rate: Rate, question: Question) -> tuple[Limits | None, str]:
    """Return the limits of the card that multiplied, or why they are not known."""
    card = question.executed.card if question.executed is not None else None
    if card is None or question.target.limits is None:
        return None, ""
    limits = question.limits_of(card.name)
    if rate.name not in ("", card.name):
        return None, f"{rate.name} is another card than the first"
    if card.mig:
        return None, "the card's limits are not those of a slice of it"
    if limits is None:
        of = question.target.card or question.target.name
        return None, f"the limits known are those of {of}"
    return limits, ""


CHECK = Check(
    id="matrix-units-are-fast",
    claim="Large products of matrices run about as fast as the card's maker says.",
    how=(
        "Multiplies large matrices of random numbers in bf16, fp16, tf32 and fp8, timed by the "
        "card's own events, and compares the median with the rate that the maker states, where a "
        "source for it is known. It warns below two thirds of what healthy cards were seen to "
        "give at least, and fails below one third."
    ),
    classes=("K",),
    remedy="See with nvidia-smi -q what holds the card back: heat, a power limit, other work.",
    runs=("machine",),
    run=_run,
)
