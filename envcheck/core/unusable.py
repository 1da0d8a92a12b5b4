"""Why a process can use no card: whose fault that is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from envcheck.core.cards import Cards
from envcheck.core.model import Domain


@dataclass(frozen=True, slots=True)
class Cause:
    """Why no card can be used, whose fault that is, and what to do."""

    message: str
    remedy: str
    domain: Domain


# CUresult, cuda.h of CUDA 13: what each means for somebody who wants to use a card.
_CODES = {
    34: Cause(
        "the libcuda.so.1 that is found first is a stub, which only serves linking",
        "remove the folder `stubs` from LD_LIBRARY_PATH",
        Domain.JOB,
    ),
    46: Cause(
        "the card is taken: another process has it for itself",
        "end that process (nvidia-smi names it), or use another card",
        Domain.HOST,
    ),
    802: Cause(
        "the system is not ready: NVLink's fabric manager does not run",
        "systemctl start nvidia-fabricmanager on the host",
        Domain.HOST,
    ),
    803: Cause(
        "the driver's library and its kernel module are of different versions",
        "reboot the host, or reload the kernel module",
        Domain.HOST,
    ),
    804: Cause(
        "a libcuda of a forward-compatibility package is found first, and this card has no use of it",
        "remove `compat` from LD_LIBRARY_PATH",
        Domain.IMAGE,
    ),
}


def unusable(cards: Cards) -> Cause | None:
    """Return why no card can be used; None where one can be."""
    if not cards.library:
        return _no_library(cards)
    if cards.code is None:
        said = f": {cards.said}" if cards.said else ""
        message = f"asking the driver for its cards did not come to an end{said}"
        return Cause(message, "reboot the host, or use another", Domain.HOST)
    if cards.code == 0 and cards.cards:
        return None
    if cards.visible is not None and cards.code in (0, 100, 101):
        shown = cards.visible or "(empty)"
        message = f"CUDA_VISIBLE_DEVICES={shown} names no card of this machine, so none is seen"
        remedy = "unset CUDA_VISIBLE_DEVICES (nvidia-smi -L lists what may stand there)"
        return Cause(message, remedy, Domain.JOB)
    if cards.code in _CODES:
        known = _CODES[cards.code]
        return replace(known, message=f"{known.message} ({cards.said})")
    if cards.code in (0, 100):
        return _no_device(cards)
    message = f"the driver cannot be started: {cards.said} ({cards.code})"
    return Cause(message, "nvidia-smi; a reboot of the host often helps", Domain.HOST)


def _no_library(cards: Cards) -> Cause:
    if cards.driver is not None or cards.nodes:
        message = "the driver is loaded, but its libcuda.so.1 is not in here"
        if cards.in_container:
            remedy = (
                "start the container with --gpus all (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
            )
            return Cause(message, remedy, Domain.HOST)
        return Cause(
            message, "install the driver's libraries (libcuda1, nvidia-utils)", Domain.HOST
        )
    if cards.in_container:
        message = "no card is in this container: neither libcuda.so.1 nor /dev/nvidia*"
        return Cause(message, "start it with --gpus all on a host with a card", Domain.HOST)
    message = "no NVIDIA driver is on this machine: neither libcuda.so.1 nor /dev/nvidia*"
    remedy = "run this on a machine with a card, or name the target: --arch blackwell"
    return Cause(message, remedy, Domain.HOST)


def _no_device(cards: Cards) -> Cause:
    if not any(node[len("/dev/nvidia") :].isdigit() for node in cards.nodes):
        message = "the driver is here, but no card: there is no /dev/nvidia0"
        return Cause(message, "start the container with --gpus all", Domain.HOST)
    message = "the driver finds no card that it can use (CUDA_ERROR_NO_DEVICE)"
    remedy = "nvidia-smi, and dmesg: a card that fell off the bus, or a wrong kernel module"
    return Cause(message, remedy, Domain.HOST)
