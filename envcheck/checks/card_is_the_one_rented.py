"""The cards are those that were rented: their number, kind, memory and power, and whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envcheck.checks import shown_cards
from envcheck.checks.check import Check, Question
from envcheck.checks.shown_cards import Shown
from envcheck.core.limits import Expected, Limits
from envcheck.core.machine import Machine
from envcheck.core.model import Domain, Finding, Status

# What NVML counts, by the gigabytes of the maker, is between 1.006 (L40S 46068 MiB, L4 23034,
# A10 23028, T4 15360: ECC takes a sixteenth of GDDR6) and 1.074 (RTX 4090 24564 MiB, A100 40960),
# with H200 143771 MiB, H100 81559, RTX 5090 32607 at 1.069 (nvidia-smi outputs: an own H200;
# modal-labs/modal-client#2797, RLinf/RLinf#255, noonghunna/club-3090#1229). CUDA counts up to a
# fiftieth less. The next smaller product, and a card with chips exchanged, is a quarter off.
_LEAST, _MOST = 0.95, 1.10
_GIVE_BACK = "give the machine back: this is not what was rented"


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    if machine is None:
        yield CHECK.skip("cards", question.why_not_looked("cards"))
        return
    cards = shown_cards.shown(machine)
    if not cards:
        yield CHECK.skip("cards", "neither CUDA nor NVML shows a card")
        return
    yield from _of_number(machine, len(cards))
    spare = _spare(machine, cards)
    for card in cards:
        if card.is_closed:
            yield CHECK.skip(card.label, "NVML lists it, and does not open it")
            continue
        if card in spare:
            message = "it is another card than those that were asked for, which are all here"
            wanted = ",".join(str(each.position) for each in cards if each not in spare)
            yield CHECK.finding(card.label, Status.WARN, message, domain=Domain.JOB, required=False,
                                remedy=f"export CUDA_VISIBLE_DEVICES={wanted}", evidence={})  # fmt: skip
            continue
        yield from _of_card(question, machine, card)


def _spare(machine: Machine, cards: Sequence[Shown]) -> list[Shown]:
    """Return the cards of another kind, as one for a screen, beside as many as were asked for."""
    expected, wanted = machine.asked.expected, machine.asked.gpus
    if expected is None or wanted is None:
        return []
    others = [card for card in cards if not card.is_closed and any(_of_kind(card, expected))]
    return others if len(cards) - len(others) >= wanted else []


def _of_number(machine: Machine, count: int) -> Iterator[Finding]:
    wanted = machine.asked.gpus
    if wanted is None or count >= wanted:
        return
    message, evidence = f"{count} card(s) are shown, {wanted} are wanted", {"shown": count}
    if machine.cards.visible is not None:
        message += f": CUDA_VISIBLE_DEVICES={machine.cards.visible or '(empty)'}"
        yield CHECK.finding("cards", Status.ERROR, message, domain=Domain.JOB, evidence=evidence,
                            remedy="unset CUDA_VISIBLE_DEVICES")  # fmt: skip
        return
    yield CHECK.finding("cards", Status.FAIL, message, domain=Domain.HOST, evidence=evidence,
                        remedy=_GIVE_BACK)  # fmt: skip


def _of_card(question: Question, machine: Machine, card: Shown) -> Iterator[Finding]:
    expected, limits = machine.asked.expected, question.limits_of(card.name)
    found = [
        *(_of_kind(card, expected) if expected is not None else ()),
        *(_of_memory(card, limits) if limits is not None and not card.is_slice else ()),
        *_of_power(card, limits),
    ]
    if card.is_slice:
        whole = expected is not None and bool(expected.reported)
        message = "it is a slice of a card (MIG), not a whole one"
        status = Status.FAIL if whole else Status.WARN
        found.append(_finding(card, status, message, _GIVE_BACK if whole else ""))
    yield from found
    if any(finding.status is not Status.PASS for finding in found):
        return
    if expected is None and limits is None:
        yield CHECK.skip(card.label, "nothing says what it should be (--expect)")
        return
    gigabytes = f", {total / 1e9:.1f} GB" if (total := _total(card)) is not None else ""
    message = f"{card.sm}{gigabytes}" + (f", as {expected.name} should be" if expected else "")
    yield _finding(card, Status.PASS, message, "")


def _of_kind(card: Shown, expected: Expected) -> Iterator[Finding]:
    if card.sm is not None and card.sm != expected.sm:
        message = f"it is {card.sm}, {expected.name} is {expected.sm}"
        yield _finding(card, Status.FAIL, message, _GIVE_BACK)
    elif expected.reported and card.name not in expected.reported:
        # A 4090 D, a laptop's chip, a Max-Q: each has a name of its own, and less in it.
        known = " or ".join(expected.reported)
        message = f"it is another product than {expected.name}, which is named {known}"
        yield _finding(card, Status.FAIL, message, _GIVE_BACK)


def _total(card: Shown) -> int | None:
    """Return the bytes of the whole card; CUDA's count of a slice is none."""
    if card.device is not None and card.device.total is not None:
        return card.device.total
    return card.card.total_memory if card.card is not None and not card.is_slice else None


def _of_memory(card: Shown, limits: Limits) -> Iterator[Finding]:
    total = _total(card)
    if total is None or limits.memory_gb is None:
        return
    share = total / (limits.memory_gb * 1e9)
    said = f"it has {total / 1e9:.1f} GB of memory, {limits.card} has {limits.memory_gb}"
    if share < _LEAST:
        yield _finding(card, Status.FAIL, said, _GIVE_BACK)
    elif share > _MOST:
        yield _finding(card, Status.WARN, f"{said}: somebody changed its chips", "")


def _of_power(card: Shown, limits: Limits | None) -> Iterator[Finding]:
    if card.device is None:
        return
    power = card.device.power
    told = [watts for watts in (power.limit, power.enforced) if watts is not None]
    if told and power.default and min(told) < power.default:
        percent = round(100 * min(told) / power.default)
        message = f"its power is limited to {min(told):.0f} of {power.default:.0f} W ({percent} %)"
        remedy = f"nvidia-smi -i {card.device.index} -pl {power.default:.0f} on the host"
        yield _finding(card, Status.WARN, message, remedy)
    if power.default and limits is not None and limits.power and power.default < limits.power:
        message = f"it is made for {power.default:.0f} W, {limits.card} for {limits.power:.0f}"
        yield _finding(card, Status.WARN, message, "expect less speed than of others of its name")


def _finding(card: Shown, status: Status, message: str, remedy: str) -> Finding:
    device = card.device
    evidence = {
        "name": card.name,
        "sm": card.sm,
        "memory_bytes": _total(card),
        "power_limit_w": device.power.limit if device is not None else None,
        "power_default_w": device.power.default if device is not None else None,
        "vbios": device.vbios if device is not None else None,
        "virtualization": device.virtualization if device is not None else None,
    }
    domain = Domain.CARD if status is Status.PASS else Domain.HOST
    return CHECK.finding(
        card.label, status, message, remedy=remedy, domain=domain, evidence=evidence
    )


CHECK = Check(
    id="card-is-the-one-rented",
    claim="The cards are those that were rented: number, kind, memory and power, and whole.",
    how=(
        "Compares name, SM and number of the cards with --expect and --gpus: a name that the "
        "driver does not give the product is another product (a 4090 D, a laptop's chip). Memory "
        "is compared with what the maker sells, by how NVML counts it, the power limit with the "
        "card's default and that with the maker's. A slice of a card (MIG) is none. Without "
        "--expect only memory and power of products that the catalogue knows can be compared."
    ),
    classes=("F4", "K"),
    remedy="Give the machine back where it is not what was rented; a power limit is the host's.",
    runs=("machine",),
    run=_run,
)
