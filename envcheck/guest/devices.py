"""Each card as NVML describes it, asked in a child: the library may hang or crash."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from envcheck.core import codec
from envcheck.core.managed import REASONS, Device, Link, Managed, Power, Process, Slice
from envcheck.guest import counting, kernel_log, nvidia_module, nvml, trial, words

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_SHUTDOWN, _SLOWDOWN = 0, 1  # nvmlTemperatureThresholds_t
_GPU = 0  # nvmlTemperatureSensors_t
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
_SPEEDS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""GT/s of a lane, and the generation of PCIe; older kernels write `8`, newer ones `8.0`."""
_PCI = "/sys/bus/pci/devices"


def look(seconds: float = 20) -> Managed:
    """Return what NVML and the kernel say of the cards; never raises."""
    try:
        ended = trial.run(lambda: codec.to_json(_managed()), deadline=seconds)
    except OSError as error:
        found = Managed(failed=f"NVML could not be asked: {error}")
    else:
        if isinstance(ended.value, dict):
            found = codec.from_json(Managed, ended.value, "managed")
        else:
            found = Managed(failed=words.reason(ended.outcome))
    xids, why = kernel_log.xids()
    return replace(found, flavour=nvidia_module.flavour(), xids=xids, why_no_xids=why)


def _managed() -> Managed:
    module = nvml.binding()
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        return Managed(failed=nvml.error_name(error))
    system = nvml.Asked()
    try:
        devices = tuple(
            _device(index, card)
            if card is not None
            else Device(index=index, unread={"handle": why})
            for index, card, why in nvml.handles()
        )
    except module.NVMLError as error:
        return Managed(failed=nvml.error_name(error))
    return Managed(
        driver=system.word("driver", "SystemGetDriverVersion"),
        nvml=system.word("nvml", "SystemGetNVMLVersion"),
        devices=devices,
        unread=system.unread,
    )


def _device(index: int, card: nvml.Asked) -> Device:
    total, free, reserved, _ = counting.memory(card)
    bus = _bus(card)
    ecc = card.ask("ecc", "DeviceGetEccMode")
    mig = card.flag("mig", "DeviceGetMigMode")
    capability = card.ask("sm", "DeviceGetCudaComputeCapability")
    return Device(
        index=index,
        name=card.word("name", "DeviceGetName"),
        uuid=card.word("uuid", "DeviceGetUUID"),
        serial=card.word("serial", "DeviceGetSerial"),
        bus=bus,
        sm=None if capability is None else f"sm_{capability[0]}{capability[1]}",
        total=total,
        free=free,
        reserved=reserved,
        mig=mig,
        slices=_slices(card) if mig else (),
        vbios=card.word("vbios", "DeviceGetVbiosVersion"),
        persistence=card.flag("persistence", "DeviceGetPersistenceMode"),
        compute_mode=_named(card, "compute_mode", "DeviceGetComputeMode", _COMPUTE_MODES),
        gsp=card.word("gsp", "DeviceGetGspFirmwareVersion"),
        ecc=None if ecc is None else bool(ecc[0]),
        ecc_after_reboot=None if ecc is None else bool(ecc[1]),
        virtualization=_named(
            card, "virtualization", "DeviceGetVirtualizationMode", _VIRTUALIZATION
        ),
        numa=_of_kernel(card, "numa", bus, "numa_node", _node),
        link=_link(card, bus),
        power=_power(card),
        temperature=temperature(card),
        slowdown_at=_threshold(card, "slowdown_at", _SLOWDOWN),
        shutdown_at=_threshold(card, "shutdown_at", _SHUTDOWN),
        sm_clock=clock(card, "sm_clock", _SM),
        memory_clock=clock(card, "memory_clock", _MEMORY),
        max_sm_clock=card.number("max_sm_clock", "DeviceGetMaxClockInfo", arguments=(_SM,)),
        max_memory_clock=card.number(
            "max_memory_clock", "DeviceGetMaxClockInfo", arguments=(_MEMORY,)
        ),
        reasons=reasons(card),
        performance_state=card.number("performance_state", "DeviceGetPerformanceState"),
        processes=_processes(card),
        counters=counting.counters(card),
        unread=card.unread,
    )


def temperature(card: nvml.Asked) -> int | None:
    """Return degrees Celsius; the older of the two calls will be gone with CUDA 14."""
    functions = ("DeviceGetTemperature", "DeviceGetTemperatureV")
    return card.number("temperature", *functions, arguments=(_GPU,))


def clock(card: nvml.Asked, field: str, kind: int) -> int | None:
    """Return MHz."""
    return card.number(field, "DeviceGetClockInfo", arguments=(kind,))


def sm_and_memory_clock(card: nvml.Asked) -> tuple[int | None, int | None]:
    """Return MHz of both."""
    return clock(card, "sm_clock", _SM), clock(card, "memory_clock", _MEMORY)


def reasons(card: nvml.Asked) -> tuple[str, ...] | None:
    """Return why clocks are not higher; drivers before 535 know the older of the calls alone."""
    functions = ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")
    bits = card.number("reasons", *functions)
    return None if bits is None else tuple(name for bit, name in REASONS.items() if bits & bit)


def generation_and_width(card: nvml.Asked) -> tuple[int | None, int | None]:
    """Return how the link to the host runs now; some virtual machines say 0."""
    generation = card.number("generation", "DeviceGetCurrPcieLinkGeneration")
    width = card.number("width", "DeviceGetCurrPcieLinkWidth")
    for field, value in (("generation", generation), ("width", width)):
        if value == 0:
            card.unread[field] = "NVML says 0"
    return generation or None, width or None


def _link(card: nvml.Asked, bus: str | None) -> Link:
    generation, width = generation_and_width(card)
    own = card.number("card_generation", "DeviceGetGpuMaxPcieLinkGeneration")
    return Link(
        generation=generation,
        width=width,
        max_generation=card.number("max_generation", "DeviceGetMaxPcieLinkGeneration"),
        max_width=card.number("max_width", "DeviceGetMaxPcieLinkWidth"),
        card_generation=own
        or _of_kernel(card, "card_generation", bus, "max_link_speed", _generation),
        card_width=_of_kernel(card, "card_width", bus, "max_link_width", _lanes),
    )


def _power(card: nvml.Asked) -> Power:
    span = card.ask("limits", "DeviceGetPowerManagementLimitConstraints") or (None, None)
    least, most = (None if each is None else round(each / 1000, 1) for each in span)
    return Power(
        limit=card.watts("limit", "DeviceGetPowerManagementLimit"),
        default=card.watts("default", "DeviceGetPowerManagementDefaultLimit"),
        least=least,
        most=most,
        enforced=card.watts("enforced", "DeviceGetEnforcedPowerLimit"),
        usage=card.watts("usage", "DeviceGetPowerUsage"),
    )


def _threshold(card: nvml.Asked, field: str, which: int) -> int | None:
    return card.number(field, "DeviceGetTemperatureThreshold", arguments=(which,))


def _named(card: nvml.Asked, field: str, function: str, names: dict[int, str]) -> str | None:
    number = card.number(field, function)
    return None if number is None else names.get(number, str(number))


def _bus(card: nvml.Asked) -> str | None:
    told = card.ask("bus", "DeviceGetPciInfo")
    return None if told is None else nvml.text(told.busId)


def _of_kernel(
    card: nvml.Asked, field: str, bus: str | None, name: str, meaning: Callable[[str], int | None]
) -> int | None:
    """Return what the kernel says of a card; it writes domains with four digits, NVML with eight."""
    if bus is None:
        card.unread[field] = "the bus of the card is not known"
        return None
    path = f"{_PCI}/{bus[-12:].lower()}/{name}"
    try:
        with open(path, encoding="ascii", errors="replace") as handle:
            said = handle.read().strip()
    except OSError as error:
        card.unread[field] = f"{path}: {error.strerror}"
        return None
    value = None
    with contextlib.suppress(ValueError):
        value = meaning(said.partition(" ")[0])
    if value is None:
        card.unread[field] = f"{path} says {said[:40]!r}"
    else:
        card.unread.pop(field, None)
    return value


def _generation(said: str) -> int | None:
    return _SPEEDS.get(float(said))


def _lanes(said: str) -> int | None:
    return int(said) if 0 < int(said) < 255 else None  # 0 and 255 are no width


def _node(said: str) -> int | None:
    return int(said) if int(said) >= 0 else None  # -1 is no node


def _slices(card: nvml.Asked) -> tuple[Slice, ...]:
    """Return the slices that are made; an index without one is no fault."""
    module = nvml.binding()
    found = []
    for index in range(card.number("slices", "DeviceGetMaxMigDeviceCount") or 0):
        try:
            part = nvml.Asked(module.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, index))
        except module.NVMLError as error:
            if not isinstance(error, module.NVMLError_NotFound):
                card.unread["slices"] = nvml.error_name(error)
            continue
        total, _, _, used = counting.memory(part)
        name, uuid = part.word("name", "DeviceGetName"), part.word("uuid", "DeviceGetUUID")
        found.append(Slice(uuid=uuid, name=name, total=total, used=used))
    return tuple(found)


def _processes(card: nvml.Asked) -> tuple[Process, ...] | None:
    """Return who is on the card; None where NVML tells of neither kind."""
    found: list[Process] = []
    for kind in ("Compute", "Graphics"):
        call = f"DeviceGet{kind}RunningProcesses"
        told: list[Any] | None = card.ask(f"{kind.lower()}_processes", call, f"{call}_v2")
        for each in told or ():
            memory = None if each.usedGpuMemory is None else int(each.usedGpuMemory)
            found.append(Process(pid=int(each.pid), kind=kind.lower(), memory=memory))
    if {"compute_processes", "graphics_processes"} <= set(card.unread):
        return None
    return tuple(found)
