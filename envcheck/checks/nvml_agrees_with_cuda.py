"""NVML answers, and names the cards that CUDA sees, in the same order."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import shown_cards
from envcheck.checks.check import Check, Question
from envcheck.core.machine import Machine
from envcheck.core.managed import Device, Managed
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.unusable import unusable

_NODE = re.compile(r"/dev/nvidia[0-9]+")
_GONE = "NVMLError_LibraryNotFound"
_MISMATCH = "NVMLError_LibRmVersionMismatch"


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    managed = machine.managed if machine is not None else None
    if machine is None or managed is None:
        yield CHECK.skip("NVML", question.why_not_looked("managed"))
    elif managed.failed is not None:
        yield _of_failure(machine, managed.failed)
    else:
        yield from _of_lists(machine, managed)


def _of_failure(machine: Machine, why: str) -> Finding:
    if why == _GONE and unusable(machine.cards) is not None:
        return CHECK.skip("NVML", f"{why}, and CUDA does not start either")
    several = len(shown_cards.of_cuda(machine)) > 1
    message, remedy = f"NVML does not start: {why}", "nvidia-smi; a reboot of the host often helps"
    hangs = not why.startswith("NVMLError")
    if hangs:
        message = f"NVML gives no answer: {why}"
    elif why == _GONE:
        message = f"libnvidia-ml.so.1 is not here ({why}): no state of a card can be seen"
        remedy = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    elif why == _MISMATCH:
        message = f"libnvidia-ml.so.1 and the kernel module are of different versions ({why})"
        remedy = "reboot the host, whose driver was updated under it; start the container anew"
    if several and not hangs:
        # ncclNvmlEnsureInitialized (NCCL, src/misc/nvmlwrap.cc) ends in ncclSystemError then.
        message += "; NCCL does not start without it, and there are several cards"
    status = Status.FAIL if several or hangs else Status.WARN
    return CHECK.finding("NVML", status, message, remedy=remedy, domain=Domain.HOST,
                         evidence={"failed": why})  # fmt: skip


def _of_lists(machine: Machine, managed: Managed) -> Iterator[Finding]:
    cards = shown_cards.of_cuda(machine)
    if not cards:
        yield CHECK.skip("NVML", f"NVML lists {len(managed.devices)} card(s), CUDA shows none")
        return
    found = [shown_cards.find(managed.devices, card, len(cards)) for card in cards]
    order = [None if device is None else device.index for device in found]
    evidence = {"nvml_of_cuda": order, "listed": len(managed.devices)}
    for position, device in enumerate(found):
        if device is not None:
            continue
        if not cards[position].uuid:
            yield CHECK.skip(f"card {position}", "CUDA does not tell its UUID")
            continue
        message = f"CUDA shows it ({cards[position].name}), and NVML does not list it"
        remedy = "nvidia-smi -L; in a container, pass all nodes of the card: --gpus all"
        yield CHECK.finding(f"card {position}", Status.WARN, message, remedy=remedy,
                            domain=Domain.HOST, evidence=evidence)  # fmt: skip
    unshown = _unshown(machine, managed, order)
    for device in unshown:
        message = f"NVML lists it ({device.name}), and CUDA does not show it"
        remedy = f"nvidia-smi -q -i {device.index}, dmesg | grep -i xid; give the machine back"
        yield CHECK.finding(f"card {device.index}", Status.WARN, message, remedy=remedy,
                            domain=Domain.HOST, evidence=evidence)  # fmt: skip
    if None in order or unshown:
        return
    # CUDA_VISIBLE_DEVICES puts them into an order that somebody wants.
    if machine.cards.visible is None and order != sorted(order, key=lambda index: index or 0):
        message = f"CUDA counts the cards in the order {order} of NVML and nvidia-smi"
        yield CHECK.finding("order", Status.WARN, message, domain=Domain.JOB,
                            remedy="export CUDA_DEVICE_ORDER=PCI_BUS_ID", evidence=evidence)  # fmt: skip
        return
    message = f"NVML {managed.nvml or ''} names the {len(cards)} card(s) that CUDA shows"
    yield CHECK.finding("NVML", Status.PASS, message, domain=Domain.HOST, evidence=evidence)


def _unshown(machine: Machine, managed: Managed, order: list[int | None]) -> list[Device]:
    """Return the cards that CUDA keeps to itself though nobody asked it to.

    Of slices CUDA shows one alone, and a card whose node is not here is another container's.
    """
    if machine.cards.visible is not None or None in order or any(d.mig for d in managed.devices):
        return []
    if sum(map(bool, map(_NODE.fullmatch, machine.cards.nodes))) < len(managed.devices):
        return []
    return [d for d in managed.devices if d.index not in order]


CHECK = Check(
    id="nvml-agrees-with-cuda",
    claim="NVML answers, and names the cards that CUDA shows, in the same order.",
    how=(
        "Starts NVML in a process of its own and compares the UUIDs of its cards with those of "
        "libcuda, slices of a card (MIG) included. That NVML is absent or does not start warns "
        "with one card, whose state nobody can see then, and fails with several, because NCCL "
        "needs it. A card that NVML lists and CUDA does not show warns, unless CUDA_VISIBLE_DEVICES "
        "or slices are the reason, or its node is not here. Another order warns where no CUDA_VISIBLE_DEVICES asks for it. Whether the "
        "program nvidia-smi is there is no matter."
    ),
    classes=("F2", "F4"),
    remedy="Give the container the driver's utilities; name cards by UUID, or set the order.",
    runs=("machine",),
    run=_run,
)
