"""What checks on the products of `envcheck preflight` share: what there is, and whose fault."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.rated import Rated

BURN = "burn "
"""How the names of what belongs to the burn begin, in `Rated.left` and the like."""
GIVE_BACK = "give the machine back, or take another card of it"
# Texts of cudaError_t that speak of the card and not of what it was given to do (CUDA Runtime
# API, cudaGetErrorString), and the end of what hangs. An illegal address may be a library's.
_OF_CARD = re.compile(
    r"(?i)\bECC\b|launch failure|hardware stack|contained error|\b(lost|unavailable|busy)\b"
    r"|unknown error|not done after"
)
_NO_MEMORY = re.compile(r"(?i)out of memory|ALLOC_FAILED")


def rated(question: Question) -> Rated | None:
    """Return what was measured on a card of this very SM."""
    return question.executed.rated if question.executed is not None else None


def why_not(question: Question) -> str:
    """Say why nothing was measured."""
    if question.machine is not None and question.executed is None:
        return question.why_not_executed
    return question.why_not_looked("rated")


def troubles(check: Check, found: Rated, *, burn: bool) -> Iterator[Finding]:
    """Judge what raised, ended its process or was left out: of the rates or of the burn."""
    for name, said in found.failed.items():
        if name.startswith(BURN) is burn:
            yield _trouble(check, name, said)
    for name, why in found.left.items():
        if name.startswith(BURN) is burn:
            yield check.skip(name, why)


def _trouble(check: Check, name: str, said: str) -> Finding:
    evidence = {"said": said}
    if _NO_MEMORY.search(said):
        remedy = "nvidia-smi names what holds the card's memory; end it, or use another card"
        return check.finding(name, Status.WARN, f"not measured: {said}", remedy=remedy,
                             domain=Domain.HOST, evidence=evidence)  # fmt: skip
    card = _OF_CARD.search(said) is not None
    if (
        name.startswith("fp8") and not card
    ):  # PyTorch has no public function for it, only one that changes
        return check.finding(name, Status.WARN, f"not measured: {said}", evidence=evidence)
    remedy = GIVE_BACK if card else "install another torch for this card: the product itself fails"
    return check.finding(
        name,
        Status.FAIL,
        f"a plain product of matrices failed: {said}",
        remedy=remedy,
        domain=Domain.CARD if card else Domain.PACKAGE,
        evidence=evidence,
    )
