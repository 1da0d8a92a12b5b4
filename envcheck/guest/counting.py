"""What a card counts of its own faults, and what its memory holds."""

from __future__ import annotations

from envcheck.core.managed import Counters
from envcheck.guest import nvml

_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_VOLATILE, _AGGREGATE = 0, 1  # nvmlEccCounterType_t
_CAUSES = (0, 1)  # nvmlPageRetirementCause_t: several single-bit errors, one double-bit error


def counters(card: nvml.Asked) -> Counters:
    """Return the counters of a card as they stand now."""
    asked = nvml.Asked(card.handle)
    rows = asked.ask("remapped", "DeviceGetRemappedRows") or (None,) * 4
    return Counters(
        corrected_volatile=_errors(asked, "corrected_volatile", _CORRECTED, _VOLATILE),
        uncorrected_volatile=_errors(asked, "uncorrected_volatile", _UNCORRECTED, _VOLATILE),
        corrected_aggregate=_errors(asked, "corrected_aggregate", _CORRECTED, _AGGREGATE),
        uncorrected_aggregate=_errors(asked, "uncorrected_aggregate", _UNCORRECTED, _AGGREGATE),
        remapped_correctable=rows[0],
        remapped_uncorrectable=rows[1],
        remap_pending=None if rows[2] is None else bool(rows[2]),
        remap_failed=None if rows[3] is None else bool(rows[3]),
        retired_pages=_retired(asked),
        retire_pending=asked.flag("retire_pending", "DeviceGetRetiredPagesPendingStatus"),
        replays=asked.number("replays", "DeviceGetPcieReplayCounter"),
        used=memory(asked)[3],
        unread=asked.unread,
    )


def memory(card: nvml.Asked) -> tuple[int | None, int | None, int | None, int | None]:
    """Return (total, free, reserved, used) in bytes; the newer call tells reserved from used."""
    version = getattr(nvml.binding(), "nvmlMemory_v2", None)
    if version is not None:
        told = card.ask("reserved", "DeviceGetMemoryInfo", arguments=(version,))
        if told is not None:
            return int(told.total), int(told.free), int(told.reserved), int(told.used)
    told = card.ask("memory", "DeviceGetMemoryInfo")
    if told is None:
        return None, None, None, None
    return int(told.total), int(told.free), None, int(told.used)


def _errors(card: nvml.Asked, field: str, kind: int, counter: int) -> int | None:
    return card.number(field, "DeviceGetTotalEccErrors", arguments=(kind, counter))


def _retired(card: nvml.Asked) -> int | None:
    count = 0
    for cause in _CAUSES:
        pages = card.ask("retired_pages", "DeviceGetRetiredPages", arguments=(cause,))
        if pages is None:
            return None
        count += len(pages)
    return count
