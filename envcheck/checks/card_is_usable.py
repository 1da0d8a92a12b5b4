"""The card that is here can be used by the environment, and nobody else takes it."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import unusable
from envcheck.core.executed import Card, Executed
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.torch_releases import install_command

# What CUDA takes for itself was 0.55 GB on an H200 (driver 580.159.04, torch 2.11), counted with
# what the first kernel loads; with four times that somebody else is on the card.
OWN = 2_200_000_000
_OLD_DRIVER = "driver on your system is too old"
_NO_TORCH = "No module named 'torch'"


def _run(question: Question) -> Iterator[Finding]:
    executed = question.inventory.executed
    if executed is None:
        yield CHECK.skip("card", question.why_not_executed)
        return
    cause = unusable.unusable(executed.cards) if executed.cards is not None else None
    if executed.card is not None:
        yield from _of_card(question, executed, executed.card)
    elif cause is not None:
        yield CHECK.finding("card", Status.ERROR, cause.message, remedy=cause.remedy,
                            domain=cause.domain, evidence=_facts(executed))  # fmt: skip
    else:
        yield _of_torch(question, executed)


def _of_torch(question: Question, executed: Executed) -> Finding:
    """Judge an environment that cannot use a card which the driver can."""
    said, evidence = executed.message or executed.outcome.status, _facts(executed)
    if _NO_TORCH in said:
        return CHECK.finding("torch", Status.SKIP, "no PyTorch is in the environment, so nothing"
                             " was run", required=False, evidence=evidence)  # fmt: skip
    if executed.torch is not None and executed.cuda is None:
        message = f"torch {executed.torch} is built without CUDA: it cannot use the card"
        # Of the same version: pip would keep the build that is there.
        remedy = install_command(question.sm).replace(" --upgrade ", " --force-reinstall ")
        return CHECK.finding("torch", Status.FAIL, message, remedy=remedy, evidence=evidence)
    if _OLD_DRIVER in said:
        told = executed.cards.driver if executed.cards is not None else None
        cuda = told.cuda if told is not None else None
        message = f"the driver serves CUDA {cuda}, torch {executed.torch} needs {executed.cuda}"
        remedy = f"use a host with a newer driver, or a torch for CUDA {cuda}"
        return CHECK.finding("driver", Status.FAIL, message, remedy=remedy, domain=Domain.HOST,
                             evidence=evidence)  # fmt: skip
    if executed.torch is None:
        message = f"torch cannot be imported: {said}"
        return CHECK.finding("torch", Status.FAIL, message, evidence=evidence)
    message = f"torch {executed.torch} cannot use the card: {said}"
    remedy = "nvidia-smi says what is on the card and in what state it is"
    return CHECK.finding("card", Status.ERROR, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


def _of_card(question: Question, executed: Executed, card: Card) -> Iterator[Finding]:
    evidence = _facts(executed)
    if card.sm != str(question.sm):
        yield CHECK.skip(card.name, question.why_not_executed)
        return
    taken = card.total_memory - card.free_memory
    if taken > OWN:
        message = (
            f"{taken / 1e9:.1f} of {card.total_memory / 1e9:.1f} GB are taken already:"
            " another process is on the card"
        )
        remedy = "nvidia-smi names it; end it, or use another card"
        yield CHECK.finding(card.name, Status.WARN, message, remedy=remedy, domain=Domain.HOST,
                            evidence=evidence)  # fmt: skip
    if question.target.card is not None and question.target.name == question.target.sm:
        message = f"no architecture of the catalogue has {card.sm}: its limits are the card's own"
        yield CHECK.finding(
            card.name, Status.WARN, message, domain=Domain.ENVCHECK, evidence=evidence
        )
    limit, known = card.shared_memory_per_block, question.target.shared_memory_per_block
    if limit is not None and known is not None and limit != known:
        message = (
            f"one block may use {limit} bytes of shared memory there, the catalogue says {known}"
        )
        yield CHECK.finding(card.name, Status.WARN, message, domain=Domain.ENVCHECK,
                            remedy="report this card", evidence=evidence)  # fmt: skip
    slice_ = ", a slice of a card (MIG)" if card.mig else ""
    message = (
        f"{card.total_memory / 1e9:.0f} GB, {card.free_memory / 1e9:.0f} free, driver"
        f" {card.driver or 'unknown'}{slice_}"
    )
    yield CHECK.finding(card.name, Status.PASS, message, domain=Domain.CARD, evidence=evidence)


def _facts(executed: Executed) -> dict[str, Json]:
    cards, card = executed.cards, executed.card
    facts: dict[str, Json] = {"torch": executed.torch, "cuda": executed.cuda}
    if cards is not None and cards.driver is not None:
        facts |= {
            "cards": tuple(c.name for c in cards.driver.cards),
            "driver_cuda": cards.driver.cuda,
            "cuInit": cards.driver.init_name or cards.driver.init,
            "CUDA_VISIBLE_DEVICES": cards.visible,
        }
    if card is not None:
        facts |= {"uuid": card.uuid, "mig": card.mig, "first_kernel": card.first_kernel}
    return facts


CHECK = Check(
    id="card-is-usable",
    claim="The environment can use the card that is here, and nobody else is on it.",
    how=(
        "Asks the driver for its cards without PyTorch, then PyTorch for the first of them, and "
        "starts a kernel. What keeps either from it is told with whose fault it is: no driver, a "
        "stub of libcuda, CUDA_VISIBLE_DEVICES, a driver older than PyTorch's CUDA, a PyTorch "
        "without CUDA, memory that others hold."
    ),
    classes=("E1", "E3", "E4", "F2", "F4", "K"),
    remedy="Follow the finding: it names what stands between the environment and the card.",
    runs=("ops",),
    run=_run,
)
