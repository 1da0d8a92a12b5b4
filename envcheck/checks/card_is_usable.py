"""The card that is here can be used by the environment, and nobody else takes it."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import coverage, driver_facts, unusable
from envcheck.core.executed import Card, Executed
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.torch_releases import install_command

# What CUDA takes for itself was 0.55 GB on an H200 (driver 580.159.04, torch 2.11), counted with
# what the first kernel loads; with four times that somebody else is on the card.
OWN = 2_200_000_000
# What asks NVML for cards and does not go on without it (vllm-project/vllm#23935).
_ASK_NVML = frozenset({"vllm"})
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
    if taken > OWN and not _is_told_by_nvml(question, card):
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
    yield from _of_libraries(question, executed)
    slice_ = ", a slice of a card (MIG)" if card.mig else ""
    message = (
        f"{card.total_memory / 1e9:.0f} GB, {card.free_memory / 1e9:.0f} free, driver"
        f" {card.driver or 'unknown'}{slice_}"
    )
    yield CHECK.finding(card.name, Status.PASS, message, domain=Domain.CARD, evidence=evidence)


def _is_told_by_nvml(question: Question, card: Card) -> bool:
    """Say whether card-is-not-shared judges the same memory, as it was before anything ran."""
    machine = question.machine
    managed = machine.managed if machine is not None else None
    devices = managed.devices if managed is not None else ()
    known = [(device.uuid, device.counters.used) for device in devices]
    known += [(part.uuid, part.used) for device in devices for part in device.slices]
    return any(uuid == card.uuid and used is not None for uuid, used in known)


def _of_libraries(question: Question, executed: Executed) -> Iterator[Finding]:
    """Name libraries of the driver that a container was not given (recipes R23b and R23c)."""
    told = executed.cards.driver if executed.cards is not None else None
    if told is None:
        return
    environment = question.inventory.environment
    names = {d.name for d in environment.distributions} if environment is not None else set()
    asks = sorted(names & _ASK_NVML)
    remedy = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    if driver_facts.PTX_COMPILER in told.absent:
        waits = [
            file.path
            for file in question.inventory.files
            if (role := question.roles.get(file.path)) is not None
            and role.required
            and coverage.of_file(file, question.sm, question.driver).mode == coverage.JIT
        ]
        status = Status.FAIL if waits else Status.WARN
        whose = f", as {waits[0]} needs" if waits else ""
        message = f"{driver_facts.PTX_COMPILER} is not here: no PTX can be compiled{whose}"
        yield CHECK.finding("driver", status, message, remedy=remedy, domain=Domain.HOST,
                            evidence={"absent": told.absent, "files": tuple(waits)})  # fmt: skip
    if driver_facts.MANAGEMENT in told.absent and asks:
        message = f"{driver_facts.MANAGEMENT} is not here: {asks[0]} finds no card without it"
        yield CHECK.finding("driver", Status.FAIL, message, remedy=remedy, domain=Domain.HOST,
                            evidence={"absent": told.absent})  # fmt: skip


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
        "stub of libcuda, a node or a library of the driver that a container was not given, "
        "CUDA_VISIBLE_DEVICES, a driver older than PyTorch's CUDA, a PyTorch "
        "without CUDA, memory that others hold."
    ),
    classes=("D4", "E1", "E3", "E4", "F2", "F4", "K"),
    remedy="Follow the finding: it names what stands between the environment and the card.",
    runs=("ops",),
    run=_run,
)
