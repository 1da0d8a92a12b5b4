"""The memory that a job sees is the memory that it may take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from envcheck.checks.check import Check, Question
from envcheck.core.host import HostMemory
from envcheck.core.machine import Machine
from envcheck.core.model import Domain, Finding, Json, Status


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    memory = machine.host.memory if machine is not None and machine.host is not None else None
    if machine is None or memory is None or memory.total is None:
        yield CHECK.skip("memory", question.why_not_looked("host.memory"))
        return
    warned, largest = False, _largest_card(machine)
    # A file system in memory has half of all memory by default (tmpfs in the kernel's
    # documentation), so what holds itself to that, /dev/shm first of all, exceeds such a limit.
    if memory.limit is not None and memory.limit < memory.total // 2:
        warned = True
        message = (
            f"{_gb(memory.limit)} may be taken of the {_gb(memory.total)} that programs see:"
            " what sizes itself by them is killed"
        )
        remedy = "give programs their sizes, or start the container with a larger --memory"
        # That of a rented part of a large host always looks so; less than the card has is rare.
        small = largest is not None and memory.limit < largest
        yield replace(_of(memory, Status.WARN, message, remedy), required=small)
    if memory.bound is not None and largest is not None and memory.bound < largest:
        message = (
            f"{_gb(memory.bound)} are less than the card's {_gb(largest)}: what fills the card"
            " cannot be read into memory first, as torch.load does"
        )
        remedy = "torch.load(mmap=True), or safetensors; else a host with more memory"
        # Whether a job reads that much at once is not known, so nothing rests on it.
        yield replace(_of(memory, Status.WARN, message, remedy), required=False)
    if not warned:
        left = f", {_gb(memory.room)} left" if memory.room is not None else ""
        limit = f"limit {_gb(memory.limit)}" if memory.limit is not None else "no limit"
        yield _of(memory, Status.PASS, f"{_gb(memory.total)}, {limit}{left}")


def _largest_card(machine: Machine) -> int | None:
    told = machine.cards.driver
    return max((c.total_memory for c in told.cards), default=None) if told is not None else None


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _of(memory: HostMemory, status: Status, message: str, remedy: str = "") -> Finding:
    evidence: dict[str, Json] = {
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "limit_bytes": memory.limit,
        "used_bytes": memory.used,
        "swap_bytes": memory.swap,
    }
    return CHECK.finding("memory", status, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="memory-is-what-it-seems",
    claim="The memory that a job sees is the memory that it may take.",
    how=(
        "Compares the host's memory, which programs see in a container too, with the smallest limit "
        "of the control groups above this process, and with the memory of the largest card. What is "
        "less warns; on a limit nothing rests unless it is less than the card has."
    ),
    remedy="Give programs their sizes, or rent a host with more memory.",
    runs=("machine",),
    run=_run,
)
