"""The link between host and card is as wide and as fast as the card's own."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import tries
from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.pcie import generation, lane_rate, speed
from envcheck.core.tried import Bus, Link, Tried

# An eighth of what the card could do, or less: one or two lanes of sixteen, or generation 1 on a
# card of generation 4. A riser with one lane made a first answer take 100 s instead of 1.3
# (robertrosenbusch/gfx803_rocm#51).
_FAIL = 1 / 8
# And no more than four lanes of generation 3 carry: what an eighth of a card of generation 4 is. A
# card of generation 5 at four lanes of generation 4, as in an external case, loads its data.
_RISER = 4 * lane_rate(8.0)
# What boards give two cards, and a host gives a card of the next generation: nothing rests on it.
_USUAL = 1 / 2
# Of the link as it was trained. Healthy ones reached 76 to 86 % (eight RTX 4090 at 16 GT/s,
# NVIDIA/nvbandwidth#15) and 89 to 91 % (eight RTX 5090 at 32 GT/s, tinygrad/
# open-gpu-kernel-modules#29); Azure's node check refuses an H100 below 83 % (52 GB/s).
_WARN = 0.6
# Of healthy links the faster way was at most 1.5 times as fast (NVIDIA/nvbandwidth#24: 52.8, 35.2).
_UNEVEN = 2.0
# Where nothing says how wide the link is: less than a single lane of generation 3.
_LEAST = lane_rate(8.0)
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""Those that PCI Express has: others are no answer (virtual machines give 0, 63 and 255)."""


def _run(question: Question) -> Iterator[Finding]:
    for item in tries.with_step(question, CHECK, "link"):
        if isinstance(item, Finding):
            yield item
        elif (link := item[1].link) is not None:
            yield from _judge(item[0], link, _told(question, item[1]))


def _told(question: Question, tried: Tried) -> float:
    """Return what NVML says that card and slot could carry; 0 where that is not told, or not real.

    A virtual machine may show a link of its own making.
    """
    managed = question.machine.managed if question.machine is not None else None
    for device in managed.devices if managed is not None else ():
        if device.uuid == tried.uuid and device.virtualization in (None, "none"):
            return lane_rate(speed(device.link.max_generation)) * (device.link.max_width or 0)
    return 0.0


def _judge(subject: str, link: Link, told: float) -> Iterator[Finding]:
    evidence = _facts(link)
    if link.to_card is None or link.to_host is None:
        message = f"no pinned memory can be had, so that copies are slow: {link.pinned}"
        remedy = "docker run --ulimit memlock=-1 ...; on the host: ulimit -l unlimited"
        yield CHECK.finding(subject, Status.WARN, message, remedy=remedy, domain=Domain.HOST,
                            evidence=evidence)  # fmt: skip
        return
    slower, faster = sorted((link.to_card, link.to_host))
    rates = f"{link.to_card:.1f} GB/s to the card, {link.to_host:.1f} back"
    bus = _trusted(link.bus, faster)
    status, message, remedy, required = Status.PASS, rates, "", True
    if bus is None:
        message += "; the system does not show how the link is trained"
        if slower < _LEAST:
            status = Status.FAIL
            message = f"{rates}: less than a single lane of generation 3 carries"
            remedy = "give the machine back; on your own: another slot, without a riser"
        elif slower < told * _FAIL:
            status = Status.FAIL
            message = f"{rates}: {slower / told:.0%} of the {told:.1f} that NVML says it can carry"
            remedy = "give the machine back; on your own: another slot, without a riser"
    else:
        status, message, remedy, required = _of_bus(rates, slower, bus)
    if status is Status.PASS and faster > _UNEVEN * slower:
        status, required = Status.WARN, True
        message = f"{rates}: one way is much slower than the other"
        remedy = (
            "numactl --cpunodebind=N --membind=N with the node of the card (nvidia-smi topo -m)"
        )
    yield CHECK.finding(subject, status, message, remedy=remedy, domain=Domain.HOST,
                        required=required, evidence=evidence)  # fmt: skip


def _of_bus(rates: str, slower: float, bus: Bus) -> tuple[Status, str, str, bool]:
    """Return status, message and remedy, and whether something rests on it."""
    now, own = lane_rate(bus.speed) * bus.width, lane_rate(bus.most_speed) * bus.most_width
    trained = f"x{bus.width} of generation {generation(bus.speed)}"
    could = f"x{bus.most_width} of generation {generation(bus.most_speed)}"
    slot = "another slot, without a riser, and the slot's settings in the BIOS"
    if slower < min(own * _FAIL, _RISER):
        message = f"{rates}, over a link that is {trained}; the card could do {could}"
        return Status.FAIL, message, f"give the machine back; on your own: {slot}", True
    if slower < now * _WARN:
        message = f"{rates}, {slower / now:.0%} of what {trained} carries ({now:.1f})"
        remedy = "look for other work on the host, and for the NUMA node (nvidia-smi topo -m)"
        return Status.WARN, message, remedy, True
    if now < own:
        message = f"{rates}: the link is {trained}, the card could do {could}"
        remedy = f"take it where data loading does not matter; else {slot}"
        return Status.WARN, message, remedy, now < own * _USUAL
    return Status.PASS, f"{rates}, {slower / now:.0%} of {trained}", "", True


def _trusted(bus: Bus | None, measured: float) -> Bus | None:
    """Return what the system shows of the link, unless that cannot be.

    Virtual machines show links that are none, and cards on NVLink-C2C carry more than theirs.
    """
    if bus is None or {bus.width, bus.most_width} - set(_WIDTHS):
        return None
    if not (generation(bus.speed) and generation(bus.most_speed)):
        return None
    return bus if measured <= lane_rate(bus.speed) * bus.width else None


def _facts(link: Link) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "to_card_gb_per_s": link.to_card,
        "to_host_gb_per_s": link.to_host,
        "pageable_to_card_gb_per_s": link.pageable_to_card,
        "pageable_to_host_gb_per_s": link.pageable_to_host,
        "pinned": link.pinned,
    }
    if link.bus is not None:
        facts |= {
            "gt_per_s": link.bus.speed,
            "lanes": link.bus.width,
            "card_gt_per_s": link.bus.most_speed,
            "card_lanes": link.bus.most_width,
        }
    return facts


CHECK = Check(
    id="host-link-is-fast",
    claim="Data goes between host and card as fast as the card's own link could carry it.",
    how=(
        "Copies 256 MiB of pinned memory each way, takes the best of several, and reads how the "
        "link is trained meanwhile, because an idle one is slower. An eighth of what the card's "
        "link could carry, or less, is a fail (a riser with one lane), below what four lanes of "
        "generation 3 carry; a link that is narrower or of an older generation than the card's is a "
        "warning, on which nothing rests down to half, as is less than 60 % of what it "
        "carries, one way that is half as fast as the other, and no pinned memory."
    ),
    classes=("K",),
    remedy="Use a slot with all lanes, without a riser, or another machine.",
    runs=("machine",),
    run=_run,
)
