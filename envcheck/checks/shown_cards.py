"""The cards that a job on this machine sees, with what CUDA and NVML each say of them."""

from __future__ import annotations

from dataclasses import dataclass

from envcheck.core.driver_facts import DriverCard
from envcheck.core.machine import Machine
from envcheck.core.managed import Device, Load, Managed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One card; at least one of the two knows it."""

    position: int
    """In CUDA's list, or in NVML's where CUDA shows nothing."""
    card: DriverCard | None = None
    device: Device | None = None

    @property
    def name(self) -> str:
        """What the driver calls the whole card, not its slice."""
        if self.device is not None and self.device.name:
            return self.device.name
        # CUDA names a slice `NVIDIA H200 MIG 1g.18gb`.
        named = self.card.name.partition(" MIG ")[0] if self.card is not None else ""
        return named or "a card without a name"

    @property
    def label(self) -> str:
        """How findings name it."""
        return f"card {self.position} ({self.name})"

    @property
    def sm(self) -> str | None:
        """`sm_90`."""
        if self.card is not None:
            return self.card.sm
        return self.device.sm if self.device is not None else None

    @property
    def is_closed(self) -> bool:
        """Whether nothing is known of it, but that NVML lists it."""
        return self.card is None and self.device is not None and "handle" in self.device.unread

    @property
    def is_slice(self) -> bool:
        """Whether a job gets a MIG slice instead of the card."""
        if self.card is not None and self.card.uuid:
            return self.card.uuid.startswith("MIG-")
        return bool(self.device is not None and self.device.mig)


def shown(machine: Machine) -> tuple[Shown, ...]:
    """Return the cards in CUDA's order; those of NVML alone where CUDA shows none."""
    cards = of_cuda(machine)
    devices = machine.managed.devices if machine.managed is not None else ()
    if not cards:
        return tuple(Shown(position=device.index, device=device) for device in devices)
    return tuple(
        Shown(position=position, card=card, device=find(devices, card, len(cards)))
        for position, card in enumerate(cards)
    )


def of_cuda(machine: Machine) -> tuple[DriverCard, ...]:
    """Return the cards that CUDA shows."""
    told = machine.cards.driver
    return told.cards if told is not None else ()


def find(devices: tuple[Device, ...], card: DriverCard, among: int) -> Device | None:
    """Return what NVML says of a card of CUDA's, which are so many; None where it knows no such."""
    for device in devices:
        slices = {part.uuid for part in device.slices}
        if card.uuid and (device.uuid == card.uuid or card.uuid in slices):
            return device
    # One card on either side is the same one, whether or not the driver tells UUIDs.
    if not card.uuid and among == len(devices) == 1:
        return devices[0]
    return None


def why_no_device(managed: Managed | None, left: str) -> str:
    """Say why NVML tells nothing of a card."""
    if managed is None:
        return left
    if managed.failed is not None:
        return f"NVML tells nothing: {managed.failed}"
    return "NVML does not list it"


def load(machine: Machine, device: Device) -> Load | None:
    """Return what was seen of a card under load."""
    if machine.watched is None:
        return None
    for each in machine.watched.cards:
        if each.uuid == device.uuid if each.uuid else each.index == device.index:
            return each
    return None


ENOUGH = 5
"""Busy samples, five a second: NVML's sample of what runs covers up to one second
(nvmlUtilization_t), so a second of them is of a card that works and not of one that begins."""
