"""The host that a rental is a part of, as far as it can be seen from inside: facts, unjudged.

Sizes are in bytes, times in seconds. None is what could not be read; `Host.unread` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envcheck.core.tools import SharedMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """How many processors a job counts, how many it may use, and who else is on them."""

    seen: int | None = None
    """`os.cpu_count()`: what most programs start threads for."""
    allowed: int | None = None
    """Those that this process may run on."""
    quota: float | None = None
    """Processors that the control groups above it allow in all; None for no limit."""
    model: str | None = None
    load: float | None = None
    """Processes of the whole host that ran or waited, over the last minute."""
    wanted: float | None = None
    """Processor time that was wanted, by whomever, while this was looked at."""
    steal: float | None = None
    """Share of it that a hypervisor gave to others."""
    busy: float | None = None
    """Share of the time of all processors that was used meanwhile, by whomever."""
    pressure: Mapping[str, float] = field(default_factory=dict)
    """Percent of the last minute in which something waited for `cpu`, `memory` or `io`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The memory of the host, and the part of it that a job may take."""

    total: int | None = None
    available: int | None = None
    limit: int | None = None
    """The smallest of the control groups; None for no limit."""
    used: int | None = None
    """Of that limit, by everything in the group that has it, without the cache of files."""
    swap: int | None = None
    swap_free: int | None = None

    @property
    def bound(self) -> int | None:
        """How much there may ever be: the limit, or all that there is."""
        return min((n for n in (self.limit, self.total) if n is not None), default=None)

    @property
    def room(self) -> int | None:
        """How much can still be taken."""
        bounds = [] if self.available is None else [self.available]
        if self.limit is not None:
            bounds.append(max(self.limit - (self.used or 0), 0))
        return min(bounds, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWrite:
    """What /dev/shm really took."""

    folder: SharedMemory
    filesystem: str | None = None
    """`tmpfs`; that of the folder around it where nothing is mounted there."""
    free: int | None = None
    wanted: int
    """What was to be written."""
    tried: int = 0
    """What was tried of it: less where there is no memory for that."""
    written: int = 0
    """What was there in the end, each page touched; it was removed again."""
    refused: str | None = None
    """`ENOSPC`, or how the process that wrote ended; None where nothing was refused. Less than
    `tried` is written without it when time ran out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk where the data will lie."""

    folder: str
    """The one that was asked for, or the nearest above it that is there."""
    missing: bool = False
    """Whether the one that was asked for is not there."""
    filesystem: str | None = None
    """`ext4`, `nfs4`."""
    network: bool = False
    """Whether that kind of file system is served over a network."""
    read_only: bool = False
    free: int | None = None
    """Bytes that this user may still write."""
    inodes: int | None = None
    """Files that may still be made; None where the file system has no such number."""
    refused: str | None = None
    """`EROFS`, `ENOSPC`, `EDQUOT`, `EACCES`: why it took nothing, or not all that was tried."""
    written: int = 0
    """Bytes that were written to measure; removed again."""
    write_rate: float | None = None
    """Bytes a second into one new file, until they were on the disk (fsync)."""
    read_rate: float | None = None
    """Bytes a second of the same file, past the page cache."""
    direct: bool = False
    """Whether it was read with O_DIRECT; else its pages were dropped from the cache before."""
    files_rate: float | None = None
    """Small files a second, each made, asked for and removed."""
    ahead: float | None = None
    """By how much the time of a fresh file is ahead of the wall clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of this process; -1 for none."""

    files: int | None = None
    """Open files, RLIMIT_NOFILE: the soft limit."""
    files_hard: int | None = None
    locked: int | None = None
    """Bytes of locked memory, RLIMIT_MEMLOCK: the soft limit."""
    processes: int | None = None
    """Processes and threads of this user, RLIMIT_NPROC: the soft limit; root has none."""
    tasks: int | None = None
    """Processes and threads in the control group; None for no limit."""
    tasks_now: int | None = None
    """How many there are already in the group that has the limit."""
    infiniband: bool = False
    """Whether there are nodes below /dev/infiniband, which need locked memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The wall clock, held against what else tells time here."""

    now: float
    """Seconds since 1970 when it was read."""
    boot: float | None = None
    """By how much boot time and uptime together are ahead of the clock."""
    own: float | None = None
    """By how much the newest of envcheck's own files is ahead of the clock; negative: older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciCard:
    """One NVIDIA device on the bus, as the kernel lists it."""

    address: str
    """`0000:01:00.0`."""
    node: int | None = None
    """The NUMA node that it hangs at; None where the kernel does not know."""
    minor: int | None = None
    """3 of `/dev/nvidia3`; None of a card that the driver does not list here."""
    iommu: str | None = None
    """How the IOMMU treats it: `DMA` (translated), `identity` (passed through); None for not at
    all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The kernel, and what this process is shut in by."""

    kernel: str
    """Its release."""
    container: str | None = None
    """`docker`, `podman`, `kubernetes`, `lxc`; None where nothing tells of one."""
    user: int
    """The effective user, in this process's own namespace."""
    user_namespace: bool | None = None
    """Whether users are mapped, so that root here is another user outside."""
    seccomp: int | None = None
    """0 for none, 2 where system calls are filtered."""
    huge_pages: str | None = None
    """Transparent huge pages: `always`, `madvise`, `never`."""
    huge_reserved: int | None = None
    """HugePages_Total."""
    numa_nodes: tuple[int, ...] = ()
    own_nodes: tuple[int, ...] = ()
    """Those with a processor that this process may run on."""
    cards: tuple[PciCard, ...] = ()
    iommu: tuple[str, ...] = ()
    """Words about IOMMU and ACS on the kernel's command line."""
    iommus: int | None = None
    """IOMMUs that the kernel drives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Processors, memory, disks, limits and clocks."""

    processors: Processors | None = None
    memory: HostMemory | None = None
    shared: SharedWrite | None = None
    disk: Disk | None = None
    bounds: Bounds | None = None
    clock: Clock | None = None
    system: System | None = None
    unlinked: tuple[str, ...] | None = None
    """Device nodes of the cards without their link in /dev/char; None where that is not to be
    seen, as in a container, whose host has these links."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Why something is None: `disk`, `memory.available`."""
