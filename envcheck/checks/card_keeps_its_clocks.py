"""Under load the card runs at its clocks: neither heat nor the power supply slow it down."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import shown_cards
from envcheck.checks.check import Check, Question
from envcheck.checks.shown_cards import Shown
from envcheck.core.machine import Machine
from envcheck.core.managed import Device, Load, Range
from envcheck.core.model import Domain, Finding, Json, Status

# nvmlClocksEventReasons: each of these cuts the clocks to a half or less, so a card that is held
# back by one of them half of the time does three quarters of its work at most.
_HALVE = {
    "hw-thermal": "it is too hot, and cuts its clocks to a half or less",
    "power-brake": "the power supply brakes it, which cuts its clocks to a half or less",
    "hw-slowdown": "its clocks are cut to a half or less",
}
_OFTEN = 0.5
# The same page: that one "may be also reported during PState or clock change", so now and then
# it says nothing; the two others name their cause.
_MOMENTARY = "hw-slowdown"
_ASK = "nvidia-smi; where that hangs or fails too, give the machine back"
_COOL = "better cooling, or another machine"


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    if machine is not None and "watched" in machine.failed and _answered(machine):
        message = f"NVML gave no answer while the cards worked: {machine.failed['watched']}"
        yield CHECK.finding("cards", Status.WARN, message, remedy=_ASK, domain=Domain.HOST)
        return
    if machine is None or machine.watched is None:
        yield CHECK.skip("cards", question.why_not_looked("watched"))
        return
    cards = shown_cards.shown(machine)
    if not cards:
        yield CHECK.skip("cards", "neither CUDA nor NVML shows a card")
    for card in cards:
        yield from _of_card(machine, card)


def _answered(machine: Machine) -> bool:
    """Say whether NVML told of the cards before they worked; else `nvml-agrees-with-cuda` says."""
    return machine.managed is not None and machine.managed.failed is None


def _of_card(machine: Machine, card: Shown) -> Iterator[Finding]:
    device = card.device
    if device is None:
        yield CHECK.skip(card.label, shown_cards.why_no_device(machine.managed, "not looked at"))
        return
    load = shown_cards.load(machine, device)
    if load is None or load.busy < shown_cards.ENOUGH:
        seen = f"{load.busy} of {load.samples} samples" if load is not None else "no sample"
        yield CHECK.skip(card.label, f"{seen} found it at work, which is too few")
        return
    if load.reasons is None and load.sm_clock is None:
        why = load.unread.get("reasons", "no reason is told")
        yield CHECK.skip(card.label, f"NVML tells neither its clocks nor what holds them: {why}")
        return
    found = [*_of_reasons(load), *_of_clock(device, load)]
    if not any(name in (load.reasons or {}) for name in ("hw-thermal", "sw-thermal")):
        found += _of_heat(device, load)
    evidence = _evidence(device, load)
    for status, message, remedy in found:
        yield CHECK.finding(card.label, status, message, remedy=remedy, domain=Domain.HOST,
                            evidence=evidence)  # fmt: skip
    if not found:
        yield CHECK.finding(card.label, Status.PASS, _good(load), domain=Domain.CARD,
                            evidence=evidence)  # fmt: skip


_Said = tuple[Status, str, str]


def _of_reasons(load: Load) -> Iterator[_Said]:
    """Judge what NVML says holds the clocks; that power does is normal under full load."""
    reasons = load.reasons or {}
    named = any(reasons.get(name) for name in _HALVE if name != _MOMENTARY)
    for name, what in _HALVE.items():
        share = reasons.get(name, 0) / load.busy
        if name == _MOMENTARY and (named or share < _OFTEN):
            continue
        if share:
            status = Status.FAIL if share >= _OFTEN else Status.WARN
            yield status, f"in {share:.0%} of the time under load {what}", _COOL
    share = reasons.get("sw-thermal", 0) / load.busy
    if share and not reasons.get("hw-thermal"):
        message = f"in {share:.0%} of the time under load the driver slows it down for its heat"
        yield Status.WARN, message, _COOL


def _of_heat(device: Device, load: Load) -> Iterator[_Said]:
    if load.temperature is None or device.slowdown_at is None:
        return
    if load.temperature.most >= device.slowdown_at:
        message = (
            f"it reached {load.temperature.most:.0f} °C, and slows down at {device.slowdown_at}"
        )
        yield Status.WARN, message, _COOL


def _of_clock(device: Device, load: Load) -> Iterator[_Said]:
    """Name clocks that never came up, though nothing is said to hold them."""
    top = device.max_sm_clock
    if load.sm_clock is None or top is None or any((load.reasons or {}).get(n) for n in _HALVE):
        return
    if load.sm_clock.most < top / 2:  # as low as a slowdown would make them
        message = f"its clock stayed below {load.sm_clock.most:.0f} of {top} MHz under load"
        remedy = f"nvidia-smi -i {device.index} -rgc on the host, and -rac; then its power limit"
        yield Status.WARN, message, remedy


def _good(load: Load) -> str:
    clock = f"{load.sm_clock.median:.0f} MHz" if load.sm_clock is not None else "clocks untold"
    heat = f", {load.temperature.most:.0f} °C at most" if load.temperature is not None else ""
    capped = (load.reasons or {}).get("power-cap", 0) / load.busy
    cap = f", held by its power limit in {capped:.0%} of the time" if capped else ""
    blind = "; what holds its clocks is not told" if load.reasons is None else ""
    return f"{clock} under load{heat}{cap}{blind}"


def _evidence(device: Device, load: Load) -> dict[str, Json]:
    return {
        "busy_samples": load.busy,
        "reasons_samples": load.reasons,
        "sm_clock_mhz": _values(load.sm_clock),
        "max_sm_clock_mhz": device.max_sm_clock,
        "memory_clock_mhz": _values(load.memory_clock),
        "power_w": _values(load.power),
        "temperature_c": _values(load.temperature),
        "slowdown_at_c": device.slowdown_at,
        "unread": load.unread,
    }


def _values(span: Range | None) -> Json:
    return None if span is None else (span.least, span.median, span.most)


CHECK = Check(
    id="card-keeps-its-clocks",
    claim="Under load neither heat nor the power supply slow the card down.",
    how=(
        "Asks NVML five times a second, while other checks load the card, for its clocks, its "
        "heat and why the clocks are not higher. A thermal slowdown or a brake of the power "
        "supply warns, in half of the time under load it fails. That the power limit holds the "
        "clocks is normal. Evidence: least, median and most under load."
    ),
    classes=("K",),
    remedy="Give the machine back, or expect less speed: it is not cooled or fed as it must be.",
    runs=("machine",),
    run=_run,
)
