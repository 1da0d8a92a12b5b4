"""Under load the link between card and host has the lanes and the generation of the card."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import shown_cards
from envcheck.checks.check import Check, Question
from envcheck.checks.shown_cards import Shown
from envcheck.core.machine import Machine
from envcheck.core.managed import Device, Load
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.sm import Sm

# One lane is a riser: a model's first answer took 100 s over it instead of 1.3 s over 16
# (robertrosenbusch/gfx803_rocm#51). Less than the card can is a reservation, by how much less:
# half is what boards give two cards, and a host gives a card of the next generation; nothing rests
# on it.
_RISER, _WIDE, _USUAL = 1, 8, 2
# DCGM, dcgm_gpu_hardware_limits.h: DCGM_LIMIT_MAX_PCIREPLAY_RATE, in a minute.
_REPLAYS = 8
# A virtual machine may show a link of its own making; the bandwidth then tells the truth.
_REAL = (None, "none")


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    if machine is None or machine.watched is None:
        yield CHECK.skip("links", question.why_not_looked("watched"))
        return
    cards = shown_cards.shown(machine)
    if not cards:
        yield CHECK.skip("links", "neither CUDA nor NVML shows a card")
    for card in cards:
        device = card.device
        if device is None:
            why = shown_cards.why_no_device(machine.managed, "NVML was not asked")
            yield CHECK.skip(card.label, why)
            continue
        yield _of_link(question, machine, card, device)
        yield from _of_replays(machine, card, device)


def _of_link(question: Question, machine: Machine, card: Shown, device: Device) -> Finding:
    if Sm.parse(card.sm or str(question.sm)).is_on_chip:
        # NVML tells of one lane of generation 1 there (Syllo/nvtop#499).
        return CHECK.skip(card.label, "it is on the processor's own chip, and has no such link")
    load = shown_cards.load(machine, device)
    if load is None or load.busy < shown_cards.ENOUGH:
        return CHECK.skip(card.label, "it was not seen at work long enough: idle links slow down")
    if load.generation is None or load.width is None:
        why = load.unread.get("generation") or load.unread.get("width") or "no reason is told"
        return CHECK.skip(card.label, f"NVML does not tell how its link runs: {why}")
    link = device.link
    # The most that was seen: a sample may fall into a moment in which the link slept.
    generation, width = round(load.generation.most), round(load.width.most)
    limits = question.limits_of(card.name)
    own_generation = _most(
        link.card_generation or link.max_generation, limits.pcie if limits is not None else None
    )
    # NVML's own answer is of card and slot together: of one lane it would say that all is well.
    own_width = _most(link.card_width, link.max_width) if link.card_width is not None else None
    evidence: dict[str, Json] = {
        "generation": generation,
        "width_lanes": width,
        "card_generation": own_generation,
        "card_width_lanes": own_width,
        "host_and_card_generation": link.max_generation,
        "host_and_card_width_lanes": link.max_width,
        "virtualization": device.virtualization,
    }
    message = f"PCIe {generation} x{width} under load"
    if own_generation is None or own_width is None:
        message += "; what the card can do is not known"
        if width > _RISER:
            return CHECK.skip(card.label, message)
        return CHECK.finding(card.label, Status.WARN, message, domain=Domain.HOST,
                             remedy="lspci -vv names the lanes of card and slot",
                             evidence=evidence)  # fmt: skip
    # Each generation doubles the rate of a lane.
    parts = own_width / width * 2.0 ** (own_generation - generation)
    if parts <= 1:
        return CHECK.finding(card.label, Status.PASS, message, domain=Domain.HOST,
                             evidence=evidence)  # fmt: skip
    message += f", the card can PCIe {own_generation} x{own_width}: 1/{parts:.0f} of its rate"
    is_riser = width <= _RISER and own_width >= _WIDE and device.virtualization in _REAL
    remedy = "expect loading of data and models, and copies between cards, to take longer"
    if is_riser:
        remedy = "give the machine back: the card hangs on a riser of one lane"
    status = Status.FAIL if is_riser else Status.WARN
    return CHECK.finding(card.label, status, message, remedy=remedy, domain=Domain.HOST,
                         required=parts > _USUAL, evidence=evidence)  # fmt: skip


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _of_replays(machine: Machine, card: Shown, device: Device) -> Iterator[Finding]:
    load = shown_cards.load(machine, device)
    rose = _rise(device, load)
    seconds = machine.watched.seconds if machine.watched is not None else 0.0
    if rose > _REPLAYS * max(1.0, seconds / 60):
        message = f"{rose} packets were sent again in {seconds:.0f} s: the link has errors"
        evidence: dict[str, Json] = {"replays": rose, "seconds": seconds}
        yield CHECK.finding(card.label, Status.WARN, message, domain=Domain.HOST,
                            remedy="another slot, cable or riser; else another machine",
                            evidence=evidence)  # fmt: skip


def _rise(device: Device, load: Load | None) -> int:
    before = device.counters.replays
    after = load.after.replays if load is not None and load.after is not None else None
    return after - before if before is not None and after is not None else 0


CHECK = Check(
    id="link-has-all-its-lanes",
    claim="Under load the link to the host has the lanes and the generation of the card.",
    how=(
        "Asks NVML five times a second, while other checks load the card, for generation and "
        "lanes of its link, because an idle link slows down, and compares the most that was seen "
        "with what the card can do: by NVML, the kernel and the catalogue. Less warns, and nothing "
        "rests on it down to half of the rate; one lane fails. Packets that were sent again more often than eight times a minute warn."
    ),
    classes=("K",),
    remedy="Give back what hangs on a riser of one lane; for less, expect slower copies.",
    runs=("machine",),
    run=_run,
)
