"""Machines for tests: a healthy one with an H200, and what may be wrong with it.

`data/nvml/h200.json` holds what NVML of driver 580.159.04 answered on a real card, with another
serial number and UUID.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inventories import DATA

from envcheck import targets
from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.machine import Asked, Machine
from envcheck.core.managed import Device, Load, Managed, Range, Watched
from envcheck.core.model import Inventory

H200 = codec.loads(Managed, (DATA / "nvml" / "h200.json").read_bytes(), name="h200.json")
NODES = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def card(name: str = "NVIDIA H200", sm: str = "sm_90", uuid: str = UUID) -> DriverCard:
    return DriverCard(
        name=name,
        sm=sm,
        uuid=uuid,
        total_memory=150109880320,
        multiprocessors=132,
        shared_memory_per_block=232448,
    )


def cards(*shown: DriverCard, visible: str | None = None, init: int = 0) -> Cards:
    told = DriverFacts(init=init, cuda="13.0", module="580.159.04", cards=shown)
    return Cards(driver=told, visible=visible, nodes=NODES, module="580.159.04")


def device(**changes: Any) -> Device:
    """The card of the recording, with changes: `link`, `power` and `counters` as dicts."""
    real = H200.devices[0]
    for part in ("link", "power", "counters"):
        if part in changes:
            changes[part] = replace(getattr(real, part), **changes[part])
    return replace(real, **changes)


def span(least: float, median: float, most: float) -> Range:
    return Range(least=float(least), median=float(median), most=float(most))


def load(**changes: Any) -> Load:
    """An H200 that works: at its power limit, warm, its link as wide as it can be."""
    steady = Load(
        index=0, uuid=UUID, samples=60, busy=50, reasons={"power-cap": 40},
        generation=span(least=5, median=5, most=5), width=span(least=16, median=16, most=16),
        sm_clock=span(least=1200, median=1700, most=1980),
        memory_clock=span(least=3201, median=3201, most=3201),
        power=span(least=300, median=690, most=705),
        temperature=span(least=45, median=60, most=66),
        utilization=span(least=10, median=100, most=100), after=H200.devices[0].counters,
    )  # fmt: skip
    if "after" in changes and isinstance(changes["after"], dict):
        changes["after"] = replace(H200.devices[0].counters, **changes["after"])
    return replace(steady, **changes)


def machine(
    *devices: Device,
    loads: tuple[Load, ...] | None = None,
    asked: Asked | None = None,
    **parts: Any,
) -> Machine:
    """The healthy machine, with other cards, loads or parts of it."""
    managed = replace(H200, devices=devices) if devices else H200
    shown = tuple(card(d.name or "", d.sm or "", d.uuid or "") for d in managed.devices)
    whole = Machine(
        asked=asked or Asked(),
        cards=cards(*shown),
        managed=managed,
        watched=Watched(seconds=12.0, cards=loads if loads is not None else (load(),), xids=()),
    )
    return replace(whole, **parts)


def asked(expect: str | None = None, **wanted: Any) -> Asked:
    expected = targets.expected(expect) if expect is not None else None
    return Asked(expect=expect, expected=expected, **wanted)


def inventory(whole: Machine | None) -> Inventory:
    return Inventory(source="environment", machine=whole)
