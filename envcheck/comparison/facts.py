"""The facts of one inventory that are worth putting beside another's, as words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from envcheck.core.model import Environment, Inventory
from envcheck.core.rated import Rated, label
from envcheck.core.tried import Tried

Words = dict[str, str | None]
_Rates = Iterator[tuple[tuple[str, str], float | None]]


@dataclass(frozen=True, slots=True)
class Group:
    """Facts that are known together or not at all."""

    name: str
    of: Callable[[Inventory], Words | None]
    always: bool = False
    """Whether it is worth a word that neither of the two has them."""

    def read(self, inventory: Inventory | None) -> Words | None:
        """Return the facts; None where they are not known."""
        return None if inventory is None else self.of(inventory)


def distributions(inventory: Inventory | None) -> dict[str, str | None] | None:
    """Return the version of each distribution; where it has several, all of them."""
    if inventory is None or inventory.environment is None:
        return None
    found: dict[str, list[str]] = {}
    for one in inventory.environment.distributions:
        found.setdefault(one.name, []).append(one.version)
    return {name: ", ".join(sorted(versions)) for name, versions in sorted(found.items())}


def rates(inventory: Inventory | None) -> dict[tuple[str, str], float]:
    """Return what was measured, by its name and unit."""
    machine = None if inventory is None else inventory.machine
    executed = None if inventory is None else inventory.executed
    found: dict[tuple[str, str], float | None] = {}
    for number, card in enumerate(machine.tried if machine is not None else ()):
        found.update(_tried(card, number))
    if executed is not None and executed.rated is not None:
        found.update(_rated(executed.rated))
    disk = machine.host.disk if machine is not None and machine.host is not None else None
    if disk is not None:
        found["disk, writing", "B/s"] = disk.write_rate
        found["disk, reading", "B/s"] = disk.read_rate
        found["disk, small files", "1/s"] = disk.files_rate
    return {name: rate for name, rate in found.items() if rate is not None}


def _tried(card: Tried, number: int) -> _Rates:
    if card.launches is not None:
        yield (label("launch, answered", number), "us"), card.launches.answered
        yield (label("launch, enqueued", number), "us"), card.launches.enqueued
    if card.link is not None:
        yield (label("host to card, pinned", number), "GB/s"), card.link.to_card
        yield (label("card to host, pinned", number), "GB/s"), card.link.to_host
        yield (label("host to card, pageable", number), "GB/s"), card.link.pageable_to_card
        yield (label("card to host, pageable", number), "GB/s"), card.link.pageable_to_host
    if card.copied is not None:
        yield (label("card's memory, by a kernel", number), "GB/s"), card.copied.by_kernel
        yield (label("card's memory, by the driver", number), "GB/s"), card.copied.by_driver


def _rated(rated: Rated) -> _Rates:
    for one in rated.rates:
        name = label(f"matrices {one.dtype} of {one.size}", one.card)
        yield (name, "Tflop/s"), one.tflops
        yield (f"{name}, clock", "MHz"), one.clock


def _environment(inventory: Inventory) -> Words | None:
    found = inventory.environment
    if found is None:
        return None
    torch, triton, image = found.torch, found.triton, found.image
    return {
        "Python": found.python,
        "implementation": found.implementation,
        "platform": found.platform,
        "C library": found.libc,
        "environment digest": found.digest,
        "content digest": found.content,
        "image": None if image is None else image.id,
        "PyTorch": None if torch is None else torch.version,
        "CUDA of PyTorch": None if torch is None else torch.cuda,
        "code of PyTorch": None if torch is None else " ".join(torch.arch_list),
        "Triton": None if triton is None else triton.version,
        "cuda-compat": ", ".join(found.compat) or None,
        "driver of the machine": _driver(inventory, found),
        **{f"variable {k}": v for k, v in sorted((found.variables or {}).items())},
    }


def _driver(inventory: Inventory, environment: Environment) -> str | None:
    machine = inventory.machine
    return environment.driver or (None if machine is None else machine.cards.module)


def _executed(inventory: Inventory) -> Words | None:
    found = inventory.executed
    if found is None:
        return None
    words: Words = {
        "torch that ran": found.torch,
        "CUDA that ran": found.cuda,
        **{f"setting {k}": v for k, v in sorted(found.settings.items())},
    }
    if found.card is not None:
        words |= _card("card that ran", found.card.name, found.card.sm, found.card.uuid)
        words["card that ran: memory"] = str(found.card.total_memory)
        words["card that ran: driver"] = found.card.driver
    return words


def _machine(inventory: Inventory) -> Words | None:
    found = inventory.machine
    if found is None:
        return None
    words: Words = {"kernel module": found.cards.module}
    driver, host = found.cards.driver, found.host
    words["CUDA of the driver"] = None if driver is None else driver.cuda
    for number, card in enumerate(driver.cards if driver is not None else ()):
        name = label("card", number)
        words |= _card(name, card.name, card.sm, card.uuid)
        words[f"{name}: memory"] = str(card.total_memory)
    if host is not None and host.processors is not None:
        words["processors"] = str(host.processors.allowed or host.processors.seen)
        words["processor"] = host.processors.model
    if host is not None and host.memory is not None:
        words["memory of the host"] = str(host.memory.bound)
    if host is not None and host.system is not None:
        words["kernel of the system"] = host.system.kernel
    return words


def _card(name: str, product: str, sm: str, uuid: str) -> Mapping[str, str | None]:
    return {name: product, f"{name}: SM": sm, f"{name}: UUID": uuid or None}


GROUPS = (
    Group("environment", _environment, always=True),
    Group("runs", _executed),
    Group("machine", _machine),
)
