"""Neither the card's own counters nor the kernel's log speak of a sick card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.checks import shown_cards, xids
from envcheck.checks.check import Check, Question
from envcheck.checks.shown_cards import Shown
from envcheck.core.machine import Machine
from envcheck.core.managed import Counters, Device, Xid
from envcheck.core.model import Domain, Finding, Json, Status

_GIVE_BACK = "give the machine back, with this line as the reason"
# nvmlReturn_t: what NVML answers of a card that is not there any more, or not to be used.
_BROKEN = {
    "NVMLError_GpuIsLost": "has fallen off the bus",
    "NVMLError_ResetRequired": "cannot be used before a reset",
    "NVMLError_InsufficientPower": "has its power cables not properly attached",
    "NVMLError_IrqIssue": "has a problem with its interrupts",
}
_INFOROM = "NVMLError_CorruptedInforom"
# Who takes a bad page away from the next program at once; the others wait for a reset with it
# (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, "Supported GPUs": dynamic page offlining).
_OFFLINES = frozenset({"sm_80", "sm_90", "sm_100", "sm_103"})
# DCGM, dcgm_gpu_hardware_limits.h: DCGM_LIMIT_MAX_RETIRED_PAGES, that of the field diagnostic.
_MOST_PAGES = 63


@dataclass(frozen=True, slots=True)
class _Fault:
    status: Status
    message: str
    remedy: str = _GIVE_BACK


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    managed = machine.managed if machine is not None else None
    if machine is None or managed is None or managed.failed is not None:
        left = question.why_not_looked("managed")
        yield CHECK.skip("cards", shown_cards.why_no_device(managed, left))
        return
    cards = shown_cards.shown(machine)
    known = [card.device.index for card in cards if card.device is not None]
    for device in managed.devices:
        if "handle" in device.unread and device.index not in known:
            yield from _of_closed(device)
    for card in cards:
        yield from _of_card(question, machine, card)
    yield from _of_others(machine, cards)


def _of_closed(device: Device) -> Iterator[Finding]:
    """Judge a card that NVML lists and cannot open; one that is not ours may well be closed."""
    subject, why = f"card {device.index} of NVML", device.unread["handle"]
    if why not in _BROKEN:
        yield CHECK.skip(subject, f"NVML does not open it: {why}")
        return
    message = f"it {_BROKEN[why]} ({why})"
    yield CHECK.finding(subject, Status.FAIL, message, remedy=_GIVE_BACK, domain=Domain.CARD,
                        evidence={"handle": why})  # fmt: skip


def _of_card(question: Question, machine: Machine, card: Shown) -> Iterator[Finding]:
    device = card.device
    if device is None:
        yield CHECK.skip(card.label, shown_cards.why_no_device(machine.managed, ""))
        return
    load = shown_cards.load(machine, device)
    now = load.after if load is not None and load.after is not None else device.counters
    logged = _logged(machine)
    mine = [x for x in logged or () if _is_of(x, device)]
    answers = {*device.unread.values(), *device.counters.unread.values(), *now.unread.values()}
    answers |= set(load.unread.values()) if load is not None else set()
    evidence = _evidence(device, now, mine)
    faults = (
        *(_Fault(Status.FAIL, f"it {_BROKEN[a]} ({a})") for a in sorted(answers & set(_BROKEN))),
        *_of_errors(device.counters, now),
        *_of_rows(now, card.sm or str(question.sm)),
        *_of_pages(now),
        *_of_xids(mine, _arisen(machine)),
    )
    for fault in faults:
        yield CHECK.finding(card.label, fault.status, fault.message, remedy=fault.remedy,
                            domain=Domain.CARD, evidence=evidence)  # fmt: skip
    if _INFOROM in answers:
        message = f"its InfoROM is corrupted ({_INFOROM}): what it counts of itself is not kept"
        yield CHECK.finding(card.label, Status.WARN, message, domain=Domain.CARD,
                            evidence=evidence)  # fmt: skip
    if not faults:
        yield _without_fault(card, now, logged, machine, evidence)


def _of_errors(before: Counters, now: Counters) -> Iterator[_Fault]:
    volatile, life = now.uncorrected_volatile or 0, now.uncorrected_aggregate or 0
    told = before.uncorrected_volatile
    rose = volatile - told if told is not None else 0
    if rose > 0:
        message = f"{rose} uncorrected memory error(s) while it worked"
        yield _Fault(Status.FAIL, message)
    elif volatile:
        message = f"{volatile} uncorrected memory error(s) since the driver was loaded"
        yield _Fault(Status.FAIL, message)
    elif life:
        message = (
            f"{life} uncorrected memory error(s) in its life, none since the driver was loaded"
        )
        yield _Fault(Status.WARN, message, "nvidia-smi -q -d ECC,ROW_REMAPPER")
    corrected = (now.corrected_volatile or 0) - (before.corrected_volatile or 0)
    if corrected > 0 and before.corrected_volatile is not None:
        message = f"{corrected} corrected memory error(s) while it worked"
        yield _Fault(Status.WARN, message, "nvidia-smi -q -d ECC")


def _of_rows(now: Counters, sm: str) -> Iterator[_Fault]:
    if now.remap_failed:
        # NVIDIA's criterion for taking a card back ("RMA Policy", a100-gpu-mem-error-mgmt).
        yield _Fault(Status.FAIL, "a bad row of its memory could not be remapped")
    if now.remap_pending and sm in _OFFLINES:
        message = "a bad row of its memory waits for a reset; until then its pages are not used"
        yield _Fault(Status.WARN, message, "nvidia-smi -r on the host, with nothing on the card")
    elif now.remap_pending:
        message = "a bad row of its memory waits for a reset, and is in use until then"
        yield _Fault(Status.FAIL, message, "nvidia-smi -r on the host; else give it back")


def _of_pages(now: Counters) -> Iterator[_Fault]:
    if now.retire_pending:
        # "reload the driver to activate" (docs.nvidia.com/deploy/dynamic-page-retirement).
        message = "a bad page of its memory waits for the driver to be loaded anew"
        yield _Fault(Status.FAIL, message, "reboot the host; else give it back")
    if (now.retired_pages or 0) >= _MOST_PAGES:
        message = (
            f"{now.retired_pages} pages of its memory are retired, {_MOST_PAGES} are the limit"
        )
        yield _Fault(Status.FAIL, message)


def _of_xids(mine: list[Xid], arisen: set[tuple[str, int]]) -> Iterator[_Fault]:
    for xid in mine:
        if xid.number in xids.OF_PROGRAMS:
            continue
        when = "while it worked" if (xid.bus, xid.number) in arisen else "since the host was booted"
        message = f"Xid {xid.number}, {xid.count} time(s) {when}: {xids.meaning(xid.number)}"
        if xid.number in xids.SICK:
            yield _Fault(Status.FAIL, message)
        else:
            yield _Fault(Status.WARN, message, "dmesg | grep Xid")


def _of_others(machine: Machine, cards: tuple[Shown, ...]) -> Iterator[Finding]:
    """Name what befell cards that are not listed: others', or ours, and gone from the bus."""
    devices = [card.device for card in cards if card.device is not None]
    for xid in _logged(machine) or ():
        if xid.number in xids.SICK and not any(_is_of(xid, device) for device in devices):
            message = f"Xid {xid.number} of a card that is not shown: {xids.meaning(xid.number)}"
            yield CHECK.finding(f"bus {xid.bus}", Status.WARN, message, remedy="dmesg | grep Xid",
                                domain=Domain.HOST, evidence={"count": xid.count})  # fmt: skip


def _is_of(xid: Xid, device: Device) -> bool:
    return device.bus is not None and xids.place(xid.bus) == xids.place(device.bus)


def _logged(machine: Machine) -> tuple[Xid, ...] | None:
    """Return the log's Xids as it stood last."""
    if machine.watched is not None and machine.watched.xids is not None:
        return machine.watched.xids
    return machine.managed.xids if machine.managed is not None else None


def _arisen(machine: Machine) -> set[tuple[str, int]]:
    before = machine.managed.xids if machine.managed is not None else None
    after = machine.watched.xids if machine.watched is not None else None
    return xids.arisen(before, after) if before is not None and after is not None else set()


def _without_fault(
    card: Shown,
    now: Counters,
    logged: tuple[Xid, ...] | None,
    machine: Machine,
    evidence: dict[str, Json],
) -> Finding:
    """Say what was found good, and what could not be looked at."""
    parts = {
        "memory errors": now.uncorrected_volatile,
        "remapped rows": now.remap_failed,
        "retired pages": now.retire_pending,
        "Xids": logged,
    }
    good = [name for name, value in parts.items() if value is not None]
    why = machine.managed.why_no_xids if machine.managed is not None else ""
    reasons = {**now.unread, **({"Xids": why} if logged is None else {})}
    if not good:
        told = ", ".join(sorted(set(reasons.values()))) or "no reason is told"
        return CHECK.skip(card.label, f"neither counters nor the kernel's log can be read: {told}")
    # A card retires pages or remaps rows, and has the counters of one of the two.
    blind = [name for name in parts if name not in good and name != "retired pages"]
    if "retired pages" in good and "remapped rows" in blind:
        blind.remove("remapped rows")
    message = f"no fault by {', '.join(good)}"
    if blind:
        message += f"; not to be read: {', '.join(blind)}"
    return CHECK.finding(card.label, Status.PASS, message, domain=Domain.CARD,
                         evidence=evidence | {"unread": reasons})  # fmt: skip


def _evidence(device: Device, now: Counters, mine: list[Xid]) -> dict[str, Json]:
    before = device.counters
    return {
        "ecc": device.ecc,
        "uncorrected_volatile": now.uncorrected_volatile,
        "uncorrected_volatile_before": before.uncorrected_volatile,
        "uncorrected_aggregate": now.uncorrected_aggregate,
        "corrected_volatile": now.corrected_volatile,
        "corrected_volatile_before": before.corrected_volatile,
        "remapped_rows": (now.remapped_correctable, now.remapped_uncorrectable),
        "retired_pages": now.retired_pages,
        "xids": {str(xid.number): xid.count for xid in mine},
    }


CHECK = Check(
    id="card-is-healthy",
    claim="The card's own counters and the kernel's log tell of no sick card.",
    how=(
        "Reads ECC counters, remapped rows and retired pages by NVML, before anything runs and "
        "after, and Xids in the kernel's log where it can be read. Uncorrected errors since the "
        "driver was loaded, a failed remapping, and Xids after which NVIDIA's catalogue asks for "
        "a reset or reboot fail; errors of an earlier life and other Xids of the card warn. Xids "
        "that programs cause are evidence alone."
    ),
    classes=("K",),
    remedy="Give the machine back; a reset by the host's owner may help once.",
    runs=("machine",),
    run=_run,
)
