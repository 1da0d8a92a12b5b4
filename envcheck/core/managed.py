"""What NVML says of the cards: facts, unjudged.

Everywhere None is what could not be read, and the reason stands in `unread` by the name of the
field: the name of NVML's error, such as `NVMLError_NotSupported`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One report of the kernel module that something went wrong on a card."""

    bus: str
    """`0000:01:00`, as the log has it."""
    number: int
    text: str
    """What follows the number, the first time, without whose process it was."""
    count: int = 1
    """How often the log has this number of this card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a card counts of its own faults."""

    corrected_volatile: int | None = None
    """Memory errors since the driver was loaded."""
    uncorrected_volatile: int | None = None
    corrected_aggregate: int | None = None
    """Memory errors in the card's life."""
    uncorrected_aggregate: int | None = None
    remapped_correctable: int | None = None
    """Rows of memory that spare ones stand in for."""
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    """Whether a row waits for a reset to be remapped."""
    remap_failed: bool | None = None
    retired_pages: int | None = None
    """Pages that are out of use; cards before Ampere."""
    retire_pending: bool | None = None
    replays: int | None = None
    """Packets that were sent again over PCIe, since the driver was loaded."""
    used: int | None = None
    """Bytes of memory that processes hold, without what the driver reserves, where it tells."""
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The card's connection to the host."""

    generation: int | None = None
    width: int | None = None
    """Lanes."""
    max_generation: int | None = None
    """That card and host together can do, as NVML says."""
    max_width: int | None = None
    card_generation: int | None = None
    """That the card alone can do."""
    card_width: int | None = None
    """The same, from the kernel: NVML has no such function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Watts."""

    limit: float | None = None
    """That somebody set."""
    default: float | None = None
    least: float | None = None
    most: float | None = None
    enforced: float | None = None
    """The smallest of all limits that are in force."""
    usage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that has something on the card."""

    pid: int
    """In the host's count, which in a container says nothing."""
    kind: str
    """`compute` or `graphics`."""
    memory: int | None = None
    """Bytes; None where NVML does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One MIG slice of a card."""

    uuid: str | None = None
    """`MIG-...`."""
    name: str | None = None
    total: int | None = None
    used: int | None = None
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One card, as NVML describes it."""

    index: int
    name: str | None = None
    uuid: str | None = None
    """`GPU-...`."""
    serial: str | None = None
    bus: str | None = None
    """`00000000:00:06.0`."""
    sm: str | None = None
    """`sm_90`."""
    total: int | None = None
    """Bytes of memory, with what the driver reserves."""
    free: int | None = None
    reserved: int | None = None
    """None where NVML is too old to tell: then it counts as used."""
    mig: bool | None = None
    slices: tuple[Slice, ...] = ()
    vbios: str | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    """`default`, `exclusive-thread`, `prohibited` or `exclusive-process`."""
    gsp: str | None = None
    """Version of the firmware that the driver runs on the card."""
    ecc: bool | None = None
    ecc_after_reboot: bool | None = None
    virtualization: str | None = None
    """`none`, `passthrough`, `vgpu`, `host-vgpu` or `host-vsga`."""
    numa: int | None = None
    """The node of the host that it is attached to, as the kernel says."""
    link: Link = Link()
    power: Power = Power()
    temperature: int | None = None
    """Degrees Celsius."""
    slowdown_at: int | None = None
    shutdown_at: int | None = None
    sm_clock: int | None = None
    """MHz."""
    memory_clock: int | None = None
    max_sm_clock: int | None = None
    max_memory_clock: int | None = None
    reasons: tuple[str, ...] | None = None
    """Why its clocks are not higher: names of REASONS."""
    performance_state: int | None = None
    """0 is the fastest, 15 the slowest."""
    processes: tuple[Process, ...] | None = None
    counters: Counters = Counters()
    unread: Mapping[str, str] = field(default_factory=dict)
    """`handle` stands for a card that is listed and cannot be opened."""


REASONS = {
    0x1: "idle",
    0x2: "applications-clocks",
    0x4: "power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "power-brake",
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReasons, nvml.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """NVML itself, and each card that it lists, before anything ran."""

    failed: str | None = None
    """Why NVML told nothing: `NVMLError_LibraryNotFound`; None where it did."""
    driver: str | None = None
    """`580.159.04`."""
    nvml: str | None = None
    """`13.580.159.04`."""
    flavour: str | None = None
    """`open` or `proprietary`: of the kernel module; None where no file tells."""
    devices: tuple[Device, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    xids: tuple[Xid, ...] | None = None
    """Since the host was booted; None where the kernel's log cannot be read."""
    why_no_xids: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What a value was among the samples taken under load."""

    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One card under load."""

    index: int
    uuid: str | None = None
    samples: int = 0
    busy: int = 0
    """Samples in which something ran; all that follows is of those alone."""
    generation: Range | None = None
    width: Range | None = None
    sm_clock: Range | None = None
    memory_clock: Range | None = None
    power: Range | None = None
    temperature: Range | None = None
    utilization: Range | None = None
    """Percent of the time in which a kernel ran."""
    reasons: Mapping[str, int] | None = None
    """Names of REASONS, and in how many busy samples each was set."""
    after: Counters | None = None
    """When the work was done."""
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The same cards while they worked, and when they had."""

    seconds: float
    cards: tuple[Load, ...] = ()
    xids: tuple[Xid, ...] | None = None
    """As in `Managed`, read again."""
