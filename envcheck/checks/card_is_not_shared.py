"""Nobody else was on the card before anything ran."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import shown_cards
from envcheck.checks.card_is_usable import OWN
from envcheck.checks.check import Check, Question
from envcheck.checks.shown_cards import Shown
from envcheck.core.machine import Machine
from envcheck.core.managed import Device
from envcheck.core.model import Domain, Finding, Json, Status

# A process with a CUDA context and nothing in it held 0.55 GB on an H200 (see OWN): what is less
# is a display or a monitor, and not a job. Where NVML counts what the driver reserves as used
# (0.64 GB on an H200), OWN is the bound.
_CONTEXT = 500_000_000


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    managed = machine.managed if machine is not None else None
    if machine is None or managed is None or managed.failed is not None:
        left = question.why_not_looked("managed")
        yield CHECK.skip("cards", shown_cards.why_no_device(managed, left))
        return
    cards = shown_cards.shown(machine)
    if not cards:
        yield CHECK.skip("cards", "neither CUDA nor NVML shows a card")
    for card in cards:
        if card.device is None:
            yield CHECK.skip(card.label, shown_cards.why_no_device(managed, ""))
        else:
            yield _of_card(card, card.device, draws=_is_windows(machine))


def _is_windows(machine: Machine) -> bool:
    """Say whether Windows is beneath this Linux (WSL), and draws on the card by what nobody sees."""
    system = machine.host.system if machine.host is not None else None
    return system is not None and "microsoft" in system.kernel.lower()


def _of_card(card: Shown, device: Device, *, draws: bool) -> Finding:
    used, bound = _used(card, device), OWN if device.reserved is None else _CONTEXT
    if used is None:
        reasons = {**device.unread, **device.counters.unread}
        why = reasons.get("memory", "NVML does not tell how much of it is used")
        return CHECK.skip(card.label, f"its memory is not known: {why}")
    # Of a whole card in slices, NVML names the processes of all of them.
    processes = () if card.is_slice else device.processes or ()
    drawing = {each.pid for each in processes if each.kind == "graphics"}
    # A browser or a compositor stands in both lists (`C+G` in nvidia-smi).
    computing = {each.pid for each in processes if each.kind == "compute"} - drawing
    evidence: dict[str, Json] = {
        "used_bytes": used,
        "compute_processes": len(computing),
        "graphics_processes": len(drawing),
        "processes_are_told": device.processes is not None,
        "compute_mode": device.compute_mode,
    }
    remedy = "nvidia-smi names who it is, if the host lets it; end that, or give the machine back"
    message = ""
    # A screen hangs at it: that of a desktop takes no more than a context four times over.
    screen = (draws or bool(drawing)) and not computing and used <= OWN
    if used > bound and screen:
        message = f"{used / 1e9:.1f} GB of its memory are used by what draws on a screen"
    elif used > bound:
        message = f"{used / 1e9:.1f} GB of its memory were taken before anything ran"
    elif computing:
        message = f"{len(computing)} process(es) were computing on it before anything ran"
    if message:
        return CHECK.finding(card.label, Status.WARN, message, remedy=remedy, domain=Domain.HOST,
                             required=not screen, evidence=evidence)  # fmt: skip
    message = f"{used / 1e6:.0f} MB of its memory are used, by no job"
    return CHECK.finding(card.label, Status.PASS, message, domain=Domain.HOST, evidence=evidence)


def _used(card: Shown, device: Device) -> int | None:
    """Return the bytes that are used of what a job gets: the card, or its slice."""
    if not card.is_slice:
        return device.counters.used
    mine = card.card.uuid if card.card is not None else None
    return next((part.used for part in device.slices if part.uuid == mine), None)


CHECK = Check(
    id="card-is-not-shared",
    claim="Nobody else was on the card before anything ran.",
    how=(
        "Asks NVML how much memory is used and which processes are on the card, before anything "
        "is run. In a container processes of others are invisible, their memory is not. Of a card "
        "in slices (MIG) only the memory of the slice counts. On what a desktop draws with nothing rests. Where this was looked at, "
        "card-is-usable does not say the same of the memory that it finds taken."
    ),
    classes=("G2", "K"),
    remedy="End what is on the card, or give the machine back: somebody else has a part of it.",
    runs=("machine",),
    run=_run,
)
