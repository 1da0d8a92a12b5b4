"""Whole machines as people have them, healthy and sick: the decision, and whose fault it is.

What a card tells of itself is what `nvidia-smi -q` of such cards shows in public reports: GeForce
cards have no ECC, remap no rows and keep no link awake, a container sees no kernel log and no
processes of others, WSL 2 has no device nodes, GB10 shares the host's memory and shows a link of
one lane (Syllo/nvtop#426, #499), a MIG slice has no limits of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from machines import asked, card, cards, inventory, load, span

from envcheck import targets
from envcheck.checks import CHECKS, Question
from envcheck.core.cards import Cards
from envcheck.core.decision import BACK, KEEP, RESERVED, decide
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.exchanged import Exchanged, Passage, WrongCopy
from envcheck.core.host import (
    Bounds,
    Clock,
    Disk,
    Host,
    HostMemory,
    Processors,
    SharedWrite,
    System,
)
from envcheck.core.machine import Asked, Machine
from envcheck.core.managed import (
    Counters,
    Device,
    Link,
    Load,
    Managed,
    Power,
    Process,
    Slice,
    Watched,
    Xid,
)
from envcheck.core.model import Finding, Status
from envcheck.core.sm import Sm
from envcheck.core.tools import SharedMemory
from envcheck.core.tried import Bus, Copied, Held, Launches, Mismatch, Pass, Stopped, Tried
from envcheck.core.tried import Link as Copies

GB = 10**9
NONE = "NVMLError_NotSupported"
GEFORCE = {"ecc": None, "counters": Counters(used=400_000_000, unread={"ecc": NONE})}
ECC = Counters(
    corrected_volatile=0, uncorrected_volatile=0, corrected_aggregate=0, uncorrected_aggregate=0,
    remapped_correctable=0, remapped_uncorrectable=0, remap_pending=False, remap_failed=False,
    replays=0, used=0,
)  # fmt: skip
HOST = Host(
    processors=Processors(seen=32, allowed=32, load=1.0, wanted=1.0, steal=0.0),
    memory=HostMemory(total=128 * GB, available=100 * GB),
    shared=SharedWrite(
        folder=SharedMemory(path="/dev/shm", exists=True, writable=True, size=64 * GB),
        filesystem="tmpfs", free=64 * GB, wanted=300 << 20, tried=300 << 20, written=300 << 20,
    ),
    disk=Disk(folder="/data", filesystem="ext4", free=500 * GB, inodes=10**7, written=256 << 20),
    bounds=Bounds(files=1024, files_hard=1 << 20, locked=8 << 20),
    clock=Clock(now=1.8e9, own=-100.0),
)  # fmt: skip


def device(
    name: str, sm: str, mib: int, watts: float | None, index: int = 0, **more: object
) -> Device:
    made = Device(
        index=index, name=name, uuid=f"GPU-0000000{index}-0000-0000-0000-000000000000", sm=sm,
        bus=f"00000000:0{index + 1}:00.0", total=mib << 20, reserved=500_000_000,
        compute_mode="default", virtualization="none", persistence=False, mig=None,
        link=Link(generation=1, width=16, max_generation=4, max_width=16, card_generation=4,
                  card_width=16),
        power=Power(limit=watts, default=watts, enforced=watts), temperature=35, slowdown_at=90,
        max_sm_clock=3105, processes=(), counters=ECC, ecc=True,
    )  # fmt: skip
    return replace(made, **more)


def at_work(of: Device, **more: object) -> Load:
    top = of.link.card_generation or 4
    made = load(
        index=of.index, uuid=of.uuid, after=of.counters, reasons={"power-cap": 20},
        generation=span(least=1, median=top, most=top), width=span(least=16, median=16, most=16),
        sm_clock=span(least=1500, median=2400, most=2800),
    )  # fmt: skip
    return replace(made, **more)


def whole(*devices: Device, host: Host = HOST, loads: tuple[Load, ...] | None = None,
          visible: str | None = None, nodes: bool = True, wanted: Asked | None = None,
          **parts: object) -> Machine:  # fmt: skip
    """Put a machine together; in a container, whose kernel log nobody reads."""
    shown = tuple(
        replace(card(d.name or "", d.sm or "", d.uuid or ""), total_memory=d.total or 128 * GB)
        for d in devices
    )
    names = (
        ("/dev/nvidia-uvm", *(f"/dev/nvidia{d.index}" for d in devices), "/dev/nvidiactl")
        if nodes
        else ()
    )
    told = replace(cards(*shown, visible=visible), nodes=names)
    made = Machine(
        asked=wanted or Asked(), cards=told, host=host, nodes_after=names,
        managed=Managed(driver="580.159.04", nvml="13.580.159.04", devices=devices,
                        xids=None, why_no_xids="/dev/kmsg: Operation not permitted"),
        watched=Watched(seconds=30.0, cards=loads or tuple(at_work(d) for d in devices)),
        tried=tuple(trial(c) for c in shown),
    )  # fmt: skip
    return replace(made, **parts)


def trial(of: DriverCard, **more: object) -> Tried:
    known = targets.of_card(of).limits
    rate = 0.9 * ((known.bandwidth if known is not None else None) or 500.0)
    passed = Pass(pattern="address", seed=0, wrong=0, seconds=0.1)
    made = Tried(
        uuid=of.uuid, name=of.name, launches=Launches(answered=8.0, enqueued=2.5, count=300),
        link=Copies(size=256 << 20, to_card=25.0, to_host=26.0, wrong=0),
        copied=Copied(size=2 << 30, by_kernel=rate, by_driver=rate),
        held=Held(total=of.total_memory, free=of.total_memory, tested=of.total_memory * 9 // 10,
                  passes=(passed,)),
    )  # fmt: skip
    return replace(made, **more)


def on_host(**parts: object) -> Host:
    return replace(HOST, **parts)


def bus(speed: float, width: int, most: float = 16.0) -> Bus:
    return Bus(speed=speed, width=width, most_speed=most, most_width=16)


def copies(to_card: float, seen: Bus | None) -> Copies:
    return Copies(size=256 << 20, to_card=to_card, to_host=to_card, wrong=0, bus=seen)


def first_tried(of: Machine, **more: object) -> Machine:
    return replace(of, tried=(replace(of.tried[0], **more), *of.tried[1:]))


RTX_4090 = device("NVIDIA GeForce RTX 4090", "sm_89", 24564, 450.0, **GEFORCE)
RTX_5090 = device("NVIDIA GeForce RTX 5090", "sm_120", 32607, 575.0, **GEFORCE,
                  link=Link(max_generation=5, max_width=16, card_generation=5, card_width=16))  # fmt: skip
L4 = device("NVIDIA L4", "sm_89", 23034, 72.0)
A10 = device("NVIDIA A10", "sm_86", 23028, 150.0)
A100 = device("NVIDIA A100-SXM4-80GB", "sm_80", 81920, 400.0, max_sm_clock=1410, mig=False)
H100 = device("NVIDIA H100 80GB HBM3", "sm_90", 81559, 700.0, max_sm_clock=1980, mig=False,
              link=Link(max_generation=5, max_width=16, card_generation=5, card_width=16))  # fmt: skip
LAPTOP = device("NVIDIA GeForce RTX 4060 Laptop GPU", "sm_89", 8188, None, **GEFORCE,
                link=Link(max_generation=4, max_width=8, card_generation=4, card_width=16))  # fmt: skip
GB10 = device("NVIDIA GB10", "sm_121", 0, None, total=None, reserved=None, ecc=None,
              counters=Counters(unread={"memory": NONE}), unread={"memory": NONE},
              link=Link(max_generation=1, max_width=1, card_generation=5, card_width=16))  # fmt: skip
GT_1030 = device("NVIDIA GeForce GT 1030", "sm_61", 2048, 30.0, 1, **GEFORCE)
DESKTOP = (Process(pid=900, kind="graphics", memory=700_000_000),
           Process(pid=901, kind="graphics", memory=300_000_000),
           Process(pid=901, kind="compute", memory=300_000_000))  # fmt: skip
SLICE = Slice(uuid="MIG-00000000-0000-0000-0000-000000000001", total=40 * GB, used=20_000_000)


def narrow(of: Device, generation: int, width: int) -> Machine:
    seen = at_work(of, generation=span(least=1, median=generation, most=generation),
                   width=span(least=width, median=width, most=width))  # fmt: skip
    return whole(of, loads=(seen,))


def screen_at(of: Device, used: int) -> Device:
    return replace(of, processes=DESKTOP, counters=replace(of.counters, used=used))


HEALTHY: dict[str, Callable[[], Machine]] = {
    "an RTX 4090 in a container": lambda: whole(RTX_4090, wanted=asked("rtx-4090", gpus=1)),
    "an RTX 5090": lambda: whole(RTX_5090, wanted=asked("rtx-5090", gpus=1)),
    "an RTX 5090 on a host of generation 4": lambda: first_tried(
        narrow(RTX_5090, 4, 16), link=copies(25.0, bus(16.0, 16, 32.0))
    ),
    "an RTX 4090 at half of its lanes": lambda: first_tried(
        narrow(RTX_4090, 4, 8), link=copies(13.0, bus(16.0, 8))
    ),
    "an L4, idle at generation 1": lambda: whole(L4, wanted=asked("l4")),
    "an A10": lambda: whole(A10, wanted=asked("a10")),
    "an A100": lambda: whole(
        A100, loads=(at_work(A100, sm_clock=span(least=1200, median=1300, most=1410)),)
    ),
    "an H100": lambda: whole(H100, wanted=asked("h100")),
    "an H100 held by its power limit": lambda: whole(
        H100, loads=(at_work(H100, reasons={"power-cap": 50}),)
    ),
    "a laptop that tells no limit of power": lambda: whole(
        LAPTOP, loads=(at_work(LAPTOP, width=span(least=8, median=8, most=8)),)
    ),
    "a desktop with its screen on the card": lambda: whole(screen_at(RTX_4090, 1_100_000_000)),
    "WSL 2, without nodes": lambda: whole(
        replace(RTX_4090, processes=None, virtualization=None), nodes=False
    ),
    "WSL 2 below the desktop of Windows": lambda: whole(
        replace(RTX_4090, processes=None, counters=replace(RTX_4090.counters, used=2 * GB)),
        nodes=False, host=on_host(system=System(kernel="6.6.87.2-microsoft-standard-WSL2", user=0)),
    ),
    "GB10, whose memory the host's files fill": lambda: first_tried(
        whole(GB10, loads=(at_work(GB10, generation=span(least=1, median=1, most=1),
                                   width=span(least=1, median=1, most=1)),)),
        held=Held(total=128 * GB, free=8 * GB, tested=4 * GB,
                  passes=(Pass(pattern="address", seed=0, wrong=0, seconds=0.1),)),
    ),
    "two kinds of cards": lambda: whole(
        RTX_5090, replace(RTX_4090, index=1, uuid=GT_1030.uuid, bus=GT_1030.bus)
    ),
    "the card that was rented, and a small one for a screen": lambda: whole(
        RTX_5090, GT_1030, wanted=asked("rtx-5090", gpus=1)
    ),
    "one of two cards, the other hidden": lambda: replace(
        whole(RTX_4090, GT_1030),
        cards=replace(whole(RTX_4090).cards, visible="0"), tried=whole(RTX_4090).tried,
    ),
    "a card at 85 degrees": lambda: whole(
        RTX_4090, loads=(at_work(RTX_4090, temperature=span(least=60, median=84, most=85)),)
    ),
    "7.5 processors of 64, and a sixteenth of the memory": lambda: whole(RTX_4090, host=on_host(
        processors=Processors(seen=64, allowed=64, quota=7.5, load=20.0),
        memory=HostMemory(total=1024 * GB, available=600 * GB, limit=64 * GB, used=GB),
    )),
    "without huge pages, and with 1024 files": lambda: whole(RTX_4090),
    "a virtual machine that owns the card": lambda: whole(
        replace(L4, virtualization="passthrough", link=Link(max_generation=4, max_width=16))
    ),
    "eight H100": lambda: whole(
        *(replace(H100, index=n, uuid=f"GPU-{n}", bus=f"00000000:{n + 1:02x}:00.0")
          for n in range(8)), wanted=asked("h100", gpus=8)
    ),
    "an Xid that a program caused": lambda: with_xid(RTX_4090, 31),
    "another's card in a machine of two, which NVML may not open": lambda: replace(
        whole(RTX_4090),
        managed=replace(whole(RTX_4090).managed, devices=(
            RTX_4090, Device(index=1, unread={"handle": "NVMLError_NoPermission"}))),
    ),
}  # fmt: skip


def with_xid(of: Device, number: int) -> Machine:
    made = whole(of)
    assert made.managed is not None
    xid = Xid(bus=(of.bus or "")[4:-2], number=number, text="")
    return replace(made, managed=replace(made.managed, xids=(xid,), why_no_xids=""))


def counting(of: Device, **counted: object) -> Machine:
    return whole(replace(of, counters=replace(of.counters, **counted)))


def passage(**more: object) -> Machine:
    made = Passage(source=0, target=1, direct=True, copied=64 << 20, rate=20.0)
    second = replace(RTX_4090, index=1, uuid=GT_1030.uuid, bus=GT_1030.bus)
    cards_of = tuple(d.uuid or "" for d in (RTX_4090, second))
    exchanged = Exchanged(cards=cards_of, passages=(replace(made, **more),))
    return whole(RTX_4090, second, exchanged=exchanged)


def unstarted(init: int, **more: object) -> Machine:
    told = Cards(
        driver=DriverFacts(init=init, init_name="X"), nodes=("/dev/nvidia0", "/dev/nvidia-uvm")
    )
    return replace(whole(RTX_4090), cards=replace(told, **more), tried=(), watched=None)


def full_disk() -> Machine:
    assert HOST.disk is not None
    return whole(RTX_4090, host=on_host(disk=replace(HOST.disk, refused="ENOSPC")))


SICK: dict[str, tuple[Callable[[], Machine], str, str, str]] = {
    "K: uncorrectable ECC": (
        lambda: counting(L4, uncorrected_volatile=1), BACK, "card-is-healthy", "card"),
    "K: a row that cannot be remapped": (
        lambda: counting(H100, remap_failed=True), BACK, "card-is-healthy", "card"),
    "K: fallen off the bus before": (lambda: with_xid(RTX_5090, 79), BACK, "card-is-healthy", "card"),
    "K: an uncontained error": (lambda: with_xid(A100, 95), BACK, "card-is-healthy", "card"),
    "K: a contained one": (lambda: with_xid(A100, 94), RESERVED, "card-is-healthy", "card"),
    "K: a riser of one lane": (
        lambda: narrow(RTX_4090, 3, 1), BACK, "link-has-all-its-lanes", "host"),
    "K: its rate": (
        lambda: first_tried(whole(RTX_5090), link=copies(0.8, bus(8.0, 1, 32.0))),
        BACK, "host-link-is-fast", "host"),
    "K: four lanes of generation 4 under a card of 5": (
        lambda: first_tried(whole(RTX_5090), link=copies(6.6, bus(16.0, 4, 32.0))),
        RESERVED, "host-link-is-fast", "host"),
    "K: four lanes of generation 3": (
        lambda: first_tried(whole(RTX_5090), link=copies(3.2, bus(8.0, 4, 32.0))),
        BACK, "host-link-is-fast", "host"),
    "K: power braked": (
        lambda: whole(RTX_4090, loads=(at_work(RTX_4090, reasons={"power-brake": 40}),)),
        BACK, "card-keeps-its-clocks", "host"),
    "K: too hot": (
        lambda: whole(RTX_4090, loads=(at_work(RTX_4090, reasons={"hw-thermal": 10}),)),
        RESERVED, "card-keeps-its-clocks", "host"),
    "K: capped at two thirds": (
        lambda: whole(replace(RTX_4090, power=Power(limit=300.0, default=450.0, enforced=300.0))),
        RESERVED, "card-is-the-one-rented", "host"),
    "K: another product": (
        lambda: whole(replace(RTX_4090, name="NVIDIA GeForce RTX 4090 D"),
                      wanted=asked("rtx-4090")), BACK, "card-is-the-one-rented", "host"),
    "K: chips exchanged": (
        lambda: whole(replace(RTX_4090, total=49140 << 20), wanted=asked("rtx-4090")),
        RESERVED, "card-is-the-one-rented", "host"),
    "K: one card of two": (
        lambda: whole(RTX_4090, wanted=asked("rtx-4090", gpus=2)),
        BACK, "card-is-the-one-rented", "host"),
    "K: the second of two is another": (
        lambda: whole(RTX_5090, GT_1030, wanted=asked("rtx-5090", gpus=2)),
        BACK, "card-is-the-one-rented", "host"),
    "K: memory that flips": (
        lambda: first_tried(whole(RTX_4090), held=Held(
            total=24 * GB, free=24 * GB, tested=23 * GB,
            passes=(Pass(pattern="random", seed=1, wrong=3, bits="0x4", seconds=1.0, first=(
                Mismatch(offset=64, expected="0x0", found="0x4"),)),))),
        BACK, "device-memory-holds-what-is-written", "card"),
    "K: memory at half its clock": (
        lambda: first_tried(whole(RTX_4090),
                            copied=Copied(size=1 << 30, by_kernel=450.0, by_driver=440.0)),
        BACK, "device-memory-is-fast", "card"),
    "K: lost while it was tried": (
        lambda: first_tried(whole(RTX_5090), held=None, stopped=(
            Stopped(step="held", error="CUDA_ERROR_UNKNOWN (999)"),)),
        BACK, "device-memory-holds-what-is-written", "card"),
    "K: somebody else computes": (
        lambda: whole(replace(RTX_4090, processes=(Process(pid=7, kind="compute"),))),
        RESERVED, "card-is-not-shared", "host"),
    "K: somebody else's memory, in a container": (
        lambda: whole(replace(RTX_4090, counters=replace(RTX_4090.counters, used=9 * GB))),
        RESERVED, "card-is-not-shared", "host"),
    "K: a renderer of somebody else": (
        lambda: whole(screen_at(RTX_4090, 9 * GB)), RESERVED, "card-is-not-shared", "host"),
    "F4: a slice for a card": (
        lambda: replace(
            whole(replace(A100, mig=True, slices=(SLICE,)), wanted=asked("a100")),
            cards=cards(card("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "sm_80", SLICE.uuid or ""))),
        BACK, "card-is-the-one-rented", "host"),
    "F2: nodes vanish": (
        lambda: whole(RTX_4090, nodes_after=()), BACK, "device-nodes-stay", "host"),
    "F2: no NVML for two cards": (
        lambda: replace(passage(), managed=Managed(failed="NVMLError_LibraryNotFound")),
        BACK, "nvml-agrees-with-cuda", "host"),
    "F3: 64 MB of shared memory": (
        lambda: whole(RTX_4090, wanted=Asked(workers=8), host=on_host(shared=replace(
            HOST.shared, free=64 << 20, written=64 << 20, refused="ENOSPC"))),
        BACK, "dev-shm-is-large-enough", "host"),
    "F3: no /dev/shm": (
        lambda: whole(RTX_4090, host=on_host(shared=replace(
            HOST.shared, written=0, tried=0,
            folder=SharedMemory(path="/dev/shm", exists=False, writable=False, size=None)))),
        RESERVED, "dev-shm-is-large-enough", "host"),
    "E4: no fabric manager": (lambda: unstarted(802), BACK, "driver-starts", "host"),
    "E4: no node of uvm": (
        lambda: unstarted(999, nodes=("/dev/nvidia0",)), BACK, "driver-starts", "host"),
    "E4: no card that the module takes": (lambda: unstarted(100), BACK, "driver-starts", "host"),
    "I3: wrong bytes": (
        lambda: passage(wrong=(WrongCopy(size=64, offset=3, looks="zeros"),)),
        BACK, "peer-copies-arrive", "host"),
    "J: a copy hangs": (
        lambda: passage(error="not done after 8 s", hung=True), BACK, "peer-copies-arrive", "host"),
    "a full disk": (
        lambda: replace(full_disk(), asked=Asked(folder="/data")),
        BACK, "disk-takes-the-data", "host"),
    "a full disk where nobody said that the data will lie": (
        full_disk, RESERVED, "disk-takes-the-data", "host"),
    "a clock of 1970": (
        lambda: whole(RTX_4090, host=on_host(clock=Clock(now=10.0))), BACK, "clock-is-right", "host"),
}  # fmt: skip


def judged(machine: Machine, arch: str | None = None) -> list[Finding]:
    shown = machine.cards.driver.cards if machine.cards.driver is not None else ()
    target = targets.of_card(shown[0]) if shown else targets.resolve("rtx-4090")
    target = targets.resolve(arch) if arch is not None else target
    question = Question(
        target=target, sm=Sm.parse(target.sm), driver=None, inventory=inventory(machine)
    )
    return [f for check in CHECKS if "machine" in check.runs for f in check.run(question)]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_machine_is_kept(name: str) -> None:
    findings = judged(HEALTHY[name]())
    bad = (Status.FAIL, Status.ERROR, Status.WARN)
    assert [(f.check, f.message) for f in findings if f.required and f.status in bad] == []
    assert decide(findings).word == KEEP


@pytest.mark.parametrize("name", SICK)
def test_a_sick_machine_is_told_by_its_fault(name: str) -> None:
    machine, word, check, domain = SICK[name]
    findings = judged(machine())
    bad = (Status.FAIL,) if word == BACK else (Status.WARN,)
    told = {(f.check, f.domain.value) for f in findings if f.required and f.status in bad}
    assert (check, domain) in told
    assert decide(findings).word == word


@pytest.mark.parametrize("arch", ["h200", "rtx-5090", "l4", "ada", "turing"])
def test_a_machine_is_no_worse_for_what_else_it_is_judged_for(arch: str) -> None:
    """`judge` asks whether the environment works on another card: the machine stays what it is."""
    assert decide(judged(whole(RTX_4090), arch)).word == KEEP


def test_what_was_rented_has_its_makers_numbers_whatever_it_is_judged_for() -> None:
    slow = Copied(size=1 << 30, by_kernel=450.0, by_driver=440.0)
    machine = first_tried(whole(RTX_4090, wanted=asked("rtx-4090")), copied=slow)
    told = {f.check for f in judged(machine, "ada") if f.status is Status.FAIL}
    assert told == {"device-memory-is-fast"}


def test_a_machine_whose_card_was_not_seen_at_work_is_a_reservation() -> None:
    left = {"tried": "no time was left", "watched": "no time was left"}
    decision = decide(judged(whole(RTX_4090, tried=(), watched=None, left=left)))
    assert (decision.word, decision.facts[0]) == (RESERVED, "card: no time was left")
