"""Judgement of the host around a card, from facts written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask

from envcheck.checks import CHECKS
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.host import (
    Bounds,
    Clock,
    Disk,
    Host,
    HostMemory,
    PciCard,
    Processors,
    SharedWrite,
    System,
)
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding, Inventory
from envcheck.core.tools import SharedMemory

MIB, GB = 1 << 20, 10**9
NOW = 1_800_000_000.0  # in 2027
OF_THE_HOST = (
    "disk-takes-the-data",
    "memory-is-what-it-seems",
    "processors-are-what-they-seem",
    "limits-leave-room",
    "clock-is-right",
    "device-nodes-stay",
)
NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")


def machine(host: Host | None, asked: Asked | None = None, cards: Cards | None = None) -> Machine:
    return Machine(asked=asked or Asked(), cards=cards or Cards(driver=None), host=host)


def found(check: str, about: Machine | None) -> list[Finding]:
    return ask(check, Inventory(source="environment", machine=about), "sm_90")


def only(check: str, about: Machine | None) -> Finding:
    (finding,) = found(check, about)
    return finding


@pytest.mark.parametrize("check", OF_THE_HOST)
def test_without_a_machine_and_without_facts_it_is_skipped_with_the_reason(check: str) -> None:
    skipped = only(check, None)
    assert (skipped.status.value, skipped.required) == ("skip", False)
    assert "envcheck preflight" in skipped.message
    bare = replace(machine(None), left={"host": "no time was left", "nodes_after": "no time"})
    assert only(check, bare).status.value == "skip"
    assert "no time" in only(check, bare).message


@pytest.mark.parametrize("check", [c for c in OF_THE_HOST if c != "device-nodes-stay"])
def test_a_part_that_could_not_be_read_says_why(check: str) -> None:
    parts = ("disk", "memory", "processors", "bounds", "clock")
    host = Host(unread={part: f"{part}: OSError" for part in parts})
    finding = only(check, machine(host))
    assert finding.status.value == "skip"
    assert finding.message.endswith("OSError")


def test_each_of_them_asks_for_the_machine() -> None:
    of_it = {check.id for check in CHECKS if "machine" in check.runs}
    assert of_it >= {*OF_THE_HOST, "dev-shm-is-large-enough"}


def shared(size: int, **more: object) -> SharedWrite:
    folder = SharedMemory(path="/dev/shm", exists=True, writable=True, size=size)
    wrote = {"free": size, "wanted": GB, "tried": GB, "written": GB, **more}
    return SharedWrite(folder=folder, filesystem="tmpfs", **wrote)


PLENTY = HostMemory(total=64 * GB, available=60 * GB)


@pytest.mark.parametrize(
    ("wrote", "memory", "status", "said"),
    [
        (shared(8 * GB), PLENTY, "pass", "took 953 MiB"),
        (shared(64 * MIB, written=48 * MIB, refused="ENOSPC"), PLENTY, "fail", "bus error"),
        (shared(8 * GB, written=0, refused="SIGKILL"), PLENTY, "fail", "then SIGKILL"),
        # Half of what is left was written: statvfs and the memory left speak for the rest.
        (shared(8 * GB, tried=GB // 2, written=GB // 2), PLENTY, "pass", "more was not tried"),
        (shared(GB // 2, tried=GB // 4, written=GB // 4), PLENTY, "fail", "has 476 MiB free"),
        (shared(8 * GB, tried=GB // 4, written=GB // 4),
         HostMemory(total=64 * GB, available=60 * GB, limit=GB // 2, used=0),
         "fail", "476 MiB may be taken"),
        (shared(8 * GB, tried=GB // 4, written=GB // 4),
         HostMemory(total=64 * GB, available=60 * GB, limit=2 * GB, used=3 * GB // 2),
         "warn", "476 MiB are left"),
        (replace(shared(0, written=0), folder=SharedMemory(path="/dev/shm", exists=False)),
         PLENTY, "fail", "is not there"),
    ],
)  # fmt: skip
def test_r24_shared_memory_that_was_asked_for_fails_where_it_is_not_taken(
    wrote: SharedWrite, memory: HostMemory, status: str, said: str
) -> None:
    about = machine(Host(shared=wrote, memory=memory), Asked(shm=GB))
    finding = only("dev-shm-is-large-enough", about)
    assert (finding.status.value, finding.domain.value) == (status, "host")
    assert said in finding.message
    assert bool(finding.remedy) is (status != "pass")
    # Where nobody said what the job needs, it is a reservation and no reason to give back.
    unasked = only("dev-shm-is-large-enough", replace(about, asked=Asked()))
    assert unasked.status.value == ("warn" if status == "fail" else status)


DISK = Disk(folder="/data", filesystem="ext4", free=300 * GB, inodes=10**6, written=256 * MIB,
            write_rate=500e6, read_rate=2e9, files_rate=4000.0, ahead=0.0)  # fmt: skip


@pytest.mark.parametrize(
    ("disk", "asked", "status", "said"),
    [
        (DISK, None, "pass", "writes 500 MB/s, reads 2000 MB/s"),
        # 200 GB at 500 MB/s are 400 s.
        (DISK, 200 * GB, "pass", "200.0 GB are written in 7 min"),
        (DISK, 300 * GB, "pass", "300.0 GB free"),
        (DISK, 300 * GB + 1, "fail", "300.0 GB free of the 300.0 GB"),
        (replace(DISK, refused="EROFS", written=0), None, "fail", "read-only file system (EROFS)"),
        (replace(DISK, refused="EDQUOT", written=8 * MIB), None, "fail", "after 8 MiB (EDQUOT)"),
        (replace(DISK, refused="EIO", written=0), None, "fail", "refuses to be written (EIO)"),
        (replace(DISK, inodes=0), None, "fail", "no more files"),
        (replace(DISK, inodes=None), None, "pass", "ext4"),
        (replace(DISK, filesystem="nfs4", network=True), None, "pass", "nfs4, over the network"),
        (replace(DISK, missing=True), None, "pass", "is not there yet"),
        (replace(DISK, free=None), None, "pass", "tells of no size"),
        (replace(DISK, free=None), GB, "warn", "not sure"),
    ],
)
def test_the_disk(disk: Disk, asked: int | None, status: str, said: str) -> None:
    about = machine(Host(disk=disk), Asked(disk=asked, folder="/data"))
    finding = only("disk-takes-the-data", about)
    assert (finding.status.value, finding.subject) == (status, "/data")
    assert said in finding.message


@pytest.mark.parametrize(
    ("refused", "named", "status", "domain"),
    [
        ("EROFS", "/data", "fail", "host"),
        ("ENOSPC", "/data", "fail", "host"),
        # Another folder of the same machine would do: that is no reason to give it back.
        ("EACCES", "/data", "fail", "job"),
        ("ENOTDIR", "/data", "fail", "job"),
        # Somebody started the command in a folder that is not for data.
        ("EROFS", ".", "warn", "host"),
        ("EACCES", ".", "warn", "host"),
    ],
)
def test_whose_fault_a_folder_is_that_takes_nothing(
    refused: str, named: str, status: str, domain: str
) -> None:
    host = Host(disk=Disk(folder="/data", refused=refused))
    finding = only("disk-takes-the-data", machine(host, Asked(folder=named)))
    assert (finding.status.value, finding.domain.value) == (status, domain)
    assert "--data" in finding.remedy
    wanted = only("disk-takes-the-data", machine(host, Asked(folder=named, disk=GB)))
    assert wanted.status.value == "fail"


def test_a_disk_that_hangs_fails() -> None:
    host = Host(disk=Disk(folder="/mnt"), unread={"disk": "not done after 4 s"})
    finding = only("disk-takes-the-data", machine(host))
    assert finding.status.value == "fail"
    assert "not done after 4 s" in finding.message


def card(memory: int) -> Cards:
    one = DriverCard(name="C", sm="sm_90", uuid="GPU-1", total_memory=memory, multiprocessors=1,
                     shared_memory_per_block=1)  # fmt: skip
    return Cards(driver=DriverFacts(init=0, cards=(one,)))


@pytest.mark.parametrize(
    ("memory", "statuses"),
    [
        (HostMemory(total=64 * GB, available=9 * GB), ["pass"]),
        (HostMemory(total=64 * GB, limit=32 * GB), ["pass"]),
        (HostMemory(total=64 * GB, limit=32 * GB - 1), ["warn"]),
        (HostMemory(total=64 * GB, limit=23 * GB), ["warn", "warn"]),
        (HostMemory(total=23 * GB), ["warn", "pass"]),
        (HostMemory(total=24 * GB), ["pass"]),
    ],
)
def test_memory(memory: HostMemory, statuses: list[str]) -> None:
    about = machine(Host(memory=memory), cards=card(24 * GB))
    findings = found("memory-is-what-it-seems", about)
    assert [f.status.value for f in findings] == statuses
    # Less than the card has is told, and decides nothing: not every job reads that much at once.
    # Nor does a limit that is usual for a part of a host.
    assert [f.message[:12] for f in findings if f.status.value == "warn" and f.required] == (
        ["23.0 GB may b"[:12]] if memory.limit == 23 * GB else []
    )


@pytest.mark.parametrize(
    ("processors", "workers", "told"),
    [
        (Processors(seen=8, allowed=8, quota=None, load=3.0, steal=0.0), 8, {"processors": "pass"}),
        (Processors(seen=8, allowed=8, quota=8.0), None, {"processors": "pass"}),
        (Processors(seen=8, allowed=8, quota=2.5), 4, {"quota": "warn"}),
        # Only those that it may run on are counted by OpenMP and by `len(sched_getaffinity)`.
        (Processors(seen=64, allowed=8, quota=8.0), 8, {"processors": "pass"}),
        (Processors(seen=8, allowed=8), 9, {"workers": "warn"}),
        (Processors(seen=8, allowed=8, wanted=1.0, steal=0.10), None, {"processors": "pass"}),
        (Processors(seen=8, allowed=8, wanted=1.0, steal=0.11), None, {"host": "warn"}),
        # One tick of eight: chance.
        (Processors(seen=8, allowed=8, wanted=0.08, steal=0.125), None, {"processors": "pass"}),
        (Processors(seen=8, allowed=8, load=8.0), None, {"processors": "pass"}),
        (Processors(seen=8, allowed=8, load=8.1), None, {"host": "warn"}),
    ],
)
def test_processors(processors: Processors, workers: int | None, told: dict[str, str]) -> None:
    about = machine(Host(processors=processors), Asked(workers=workers))
    findings = found("processors-are-what-they-seem", about)
    assert {f.subject: f.status.value for f in findings} == told


@pytest.mark.parametrize(
    ("card", "warned"),
    [
        (PciCard(address="0000:41:00.0", node=1, minor=0), True),
        (PciCard(address="0000:41:00.0", node=0, minor=0), False),
        (PciCard(address="0000:41:00.0", node=None, minor=0), False),
        # A container sees the bus of the whole host: this card is another one's.
        (PciCard(address="0000:41:00.0", node=1, minor=7), False),
        (PciCard(address="0000:41:00.0", node=1), False),
    ],
)
def test_a_card_at_another_numa_node_than_all_processors(card: PciCard, warned: bool) -> None:
    place = System(kernel="6.1", user=0, numa_nodes=(0, 1), own_nodes=(0,), cards=(card,))
    host = Host(processors=Processors(seen=8, allowed=4), system=place)
    about = machine(host, cards=Cards(driver=None, nodes=NODES))
    finding = only("processors-are-what-they-seem", about)
    assert (finding.subject, finding.status.value) == (
        ("NUMA", "warn") if warned else ("processors", "pass")
    )


def test_the_remedy_for_a_quota_is_what_may_be_used() -> None:
    host = Host(processors=Processors(seen=64, allowed=64, quota=6.5))
    finding = only("processors-are-what-they-seem", machine(host, Asked(workers=16)))
    assert finding.remedy.startswith("export OMP_NUM_THREADS=6 MKL_NUM_THREADS=6")
    assert finding.remedy.endswith("num_workers=6 at most")


@pytest.mark.parametrize(
    ("bounds", "workers", "told"),
    [
        (Bounds(files=1024, files_hard=1024, locked=65536), None, {"limits": "pass"}),
        (Bounds(files=-1, files_hard=-1, locked=-1), 10**6, {"limits": "pass"}),
        (Bounds(files=1023, files_hard=1023), None, {"open files": "docker run --ulimit nofile"}),
        (Bounds(files=256, files_hard=4096), None, {"open files": "ulimit -n 4096"}),
        # 300 workers hand over 2 batches of 2 tensors: 1200.
        (Bounds(files=1199, files_hard=-1), 300, {"open files": "ulimit -n 1200"}),
        (Bounds(files=1200), 300, {"limits": "pass"}),
        # 8 workers with a thread each, and one thread for each of 4 processors: 20.
        (Bounds(tasks=30, tasks_now=11), None, {"processes": "docker run --pids-limit=-1"}),
        (Bounds(tasks=30, tasks_now=10), None, {"limits": "pass"}),
        (Bounds(processes=19), None, {"processes": "ulimit -u unlimited"}),
        (Bounds(processes=20), None, {"limits": "pass"}),
        (Bounds(locked=65536, infiniband=True), None, {"locked memory": "--ulimit memlock=-1"}),
        (Bounds(locked=-1, infiniband=True), None, {"limits": "pass"}),
    ],
)
def test_limits(bounds: Bounds, workers: int | None, told: dict[str, str]) -> None:
    host = Host(bounds=bounds, processors=Processors(seen=4))
    findings = {
        f.subject: f for f in found("limits-leave-room", machine(host, Asked(workers=workers)))
    }
    assert set(findings) == set(told)
    for subject, said in told.items():
        finding = findings[subject]
        if said == "pass":
            assert finding.status.value == "pass"
        else:
            assert finding.status.value == "warn"
            assert said in finding.remedy


@pytest.mark.parametrize(
    ("clock", "ahead", "status", "said"),
    [
        (Clock(now=NOW, own=-3600.0), 0.0, "pass", "files of envcheck and a new file's time"),
        (Clock(now=NOW, own=2.0), 2.0, "pass", "agrees"),
        (Clock(now=NOW, own=2.1), 0.0, "warn", "2 s after now"),
        (Clock(now=NOW, own=900.0), 0.0, "warn", "15 min after now"),
        (Clock(now=NOW, own=900.1), 0.0, "fail", "set back"),
        (Clock(now=NOW, own=-5.0), 2.1, "warn", "2 s ahead of"),
        (Clock(now=NOW, own=-5.0), -7300.0, "warn", "2 h behind"),
        (Clock(now=86400.0, own=None), None, "fail", "never set"),
        (Clock(now=NOW, own=None), None, "skip", "no other time"),
    ],
)  # fmt: skip
def test_the_clock(clock: Clock, ahead: float | None, status: str, said: str) -> None:
    host = Host(clock=clock, disk=replace(DISK, ahead=ahead))
    finding = only("clock-is-right", machine(host))
    assert finding.status.value == status
    assert said in finding.message


@pytest.mark.parametrize(
    ("before", "after", "status", "said"),
    [
        (NODES, NODES, "pass", "3 nodes"),
        (NODES, NODES[1:], "fail", "/dev/nvidia0 could be opened at the start, and not"),
        # What came meanwhile takes nothing from anybody: /dev/nvidia-uvm-tools does.
        (NODES, (*NODES, "/dev/nvidia-uvm-tools"), "pass", "3 nodes"),
        ((), (), "skip", "no node of a card to begin with"),
        (NODES, None, "skip", "not looked at"),
    ],
)
def test_r23e_nodes_that_vanish(
    before: tuple[str, ...], after: tuple[str, ...] | None, status: str, said: str
) -> None:
    about = replace(machine(None, cards=Cards(driver=None, nodes=before)), nodes_after=after)
    finding = only("device-nodes-stay", about)
    assert finding.status.value == status
    assert said in finding.message


def test_missing_links_are_a_reservation() -> None:
    about = machine(Host(unlinked=NODES[:1]), cards=Cards(driver=None, nodes=NODES))
    same, links = found("device-nodes-stay", replace(about, nodes_after=NODES))
    assert (same.status.value, links.status.value) == ("pass", "warn")
    assert links.remedy == "nvidia-ctk system create-dev-char-symlinks --create-all"
