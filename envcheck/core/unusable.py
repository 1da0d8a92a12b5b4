"""Why a process can use no card: whose fault that is, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverFacts
from envcheck.core.model import Domain


@dataclass(frozen=True, slots=True)
class Cause:
    """Why no card can be used, whose fault that is, and what to do."""

    message: str
    remedy: str
    domain: Domain


_OLD = Cause(
    "the driver is older than the CUDA that asks it",
    "use a host with a newer driver",
    Domain.HOST,
)
# CUresult, cuda.h of CUDA 13: what each means for somebody who wants to use a card. 35 is the
# runtime's (cudaErrorInsufficientDriver), for a libcuda that passes it on.
_CODES = {
    34: Cause(
        "the libcuda.so.1 that is found first is a stub, which only serves linking",
        "remove the folder `stubs` from LD_LIBRARY_PATH",
        Domain.JOB,
    ),
    35: _OLD,
    36: _OLD,
    46: Cause(
        "the card is taken: another process has it for itself",
        "end that process (nvidia-smi names it), or use another card",
        Domain.HOST,
    ),
    209: Cause(
        "the driver has no code for this card: it is older than the card",
        "use a host with a newer driver",
        Domain.HOST,
    ),
    221: Cause(
        "the driver's compiler of PTX, libnvidia-ptxjitcompiler.so.1, is not in here",
        "install the driver's libraries; in a container, NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        Domain.HOST,
    ),
    222: Cause(
        "the driver does not know a version of PTX that it is given: it is older than the CUDA",
        "use a host with a newer driver",
        Domain.HOST,
    ),
    802: Cause(
        "the system is not ready: NVLink's fabric manager does not run",
        "systemctl start nvidia-fabricmanager on the host",
        Domain.HOST,
    ),
    803: Cause(
        "the driver's library and its kernel module are of different versions",
        "remove `compat` from LD_LIBRARY_PATH if it is there; else reboot the host",
        Domain.HOST,
    ),
    804: Cause(
        "a libcuda of a forward-compatibility package is found first, and this card has no use of it",
        "remove `compat` from LD_LIBRARY_PATH",
        Domain.IMAGE,
    ),
}
_NO_DEVICE = (0, 100, 101)
"""What cuInit returns where it finds none; 0 with an empty list is the same."""
_UNKNOWN = (304, 999)
"""What it returns where the operating system refused it something."""
_UVM = "/dev/nvidia-uvm"
_OPENED = re.compile(r"/dev/nvidia([0-9]+|ctl|-uvm)")
"""What CUDA opens."""


def unusable(cards: Cards) -> Cause | None:
    """Return why no card can be used; None where one can be."""
    told = cards.driver
    if told is None:
        said = f": {cards.said}" if cards.said else ""
        message = f"asking the driver for its cards did not come to an end{said}"
        return Cause(message, "reboot the host, or use another", Domain.HOST)
    if told.missing is not None:
        return _no_library(cards)
    if told.init == 0 and told.cards:
        return None
    if cards.visible is not None and told.init in _NO_DEVICE:
        shown = cards.visible or "(empty)"
        message = f"CUDA_VISIBLE_DEVICES={shown} names no card of this machine, so none is seen"
        remedy = "unset CUDA_VISIBLE_DEVICES (nvidia-smi -L lists what may stand there)"
        return Cause(message, remedy, Domain.JOB)
    forbidden = next(filter(_OPENED.fullmatch, cards.forbidden), None)
    if told.init in (*_NO_DEVICE, *_UNKNOWN) and forbidden is not None:
        return _may_not_open(cards, forbidden)
    if told.init in (*_NO_DEVICE, *_UNKNOWN) and _lacks_uvm(cards):
        message = "the card's node is here, but /dev/nvidia-uvm is not, which CUDA opens"
        remedy = "nvidia-modprobe -u -c=0 on the host"
        if cards.in_container:
            remedy += "; then start the container with --gpus all, or with --device /dev/nvidia-uvm"
        return Cause(message, remedy, Domain.HOST)
    if told.init in _NO_DEVICE:
        return _no_device(cards)
    return _of_code(told)


def _may_not_open(cards: Cards, node: str) -> Cause:
    message = f"{node} is here, and this process may not open it"
    if not cards.in_container:
        return Cause(message, "ls -l /dev/nvidia*: add the user to the group it names", Domain.HOST)
    # A reload of systemd rewrites the rules (NVIDIA/nvidia-container-toolkit#48).
    message += ": the container's rules for devices were rewritten, or never named it"
    return Cause(message, "start the container anew, with --gpus all", Domain.HOST)


def _lacks_uvm(cards: Cards) -> bool:
    return _has_card(cards) and _UVM not in cards.nodes


def _has_card(cards: Cards) -> bool:
    return any(re.fullmatch(r"/dev/nvidia[0-9]+", node) for node in cards.nodes)


def _of_code(told: DriverFacts) -> Cause:
    said = f"{told.init_name} ({told.init})"
    known = _CODES.get(told.init or 0)
    if known is not None:
        return replace(known, message=f"{known.message}: {said}")
    message = f"the driver cannot be started: {said}"
    return Cause(message, "nvidia-smi; a reboot of the host often helps", Domain.HOST)


def _no_library(cards: Cards) -> Cause:
    if cards.module is not None or cards.nodes:
        message = "the driver is loaded, but its libcuda.so.1 is not in here"
        remedy = "install the driver's libraries (libcuda1, nvidia-utils)"
        if cards.in_container:
            remedy = "start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return Cause(message, remedy, Domain.HOST)
    if cards.in_container:
        message = "no card is in this container: neither libcuda.so.1 nor /dev/nvidia*"
        return Cause(message, "start it with --gpus all on a host with a card", Domain.HOST)
    message = "no NVIDIA driver is on this machine: neither libcuda.so.1 nor /dev/nvidia*"
    remedy = "run this on a machine with a card, or name the target: --arch blackwell"
    return Cause(message, remedy, Domain.HOST)


def _no_device(cards: Cards) -> Cause:
    if not _has_card(cards):
        message = "the driver is here, but no card: there is no /dev/nvidia0"
        return Cause(message, "start the container with --gpus all", Domain.HOST)
    message = "the driver finds no card that it can use (CUDA_ERROR_NO_DEVICE)"
    remedy = "nvidia-smi, and dmesg: a card that fell off the bus, or a wrong kernel module"
    return Cause(message, remedy, Domain.HOST)
