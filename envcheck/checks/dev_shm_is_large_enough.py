"""Processes of one job can share as much memory as a data loader needs."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.host import HostMemory, SharedWrite
from envcheck.core.machine import Machine
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.shared_memory import WORKERS, for_workers
from envcheck.core.tools import SharedMemory

NEEDED = for_workers()
_REMEDY = (
    "docker run --shm-size={size} (or --ipc=host); without a container:"
    " mount -o remount,size={size} {path}"
)


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    if machine is not None and machine.host is not None and machine.host.shared is not None:
        yield _written(machine, machine.host.shared, machine.host.memory)
        return
    environment = question.inventory.environment
    shared = environment.tools.shared if environment is not None and environment.tools else None
    if environment is None or shared is None:
        yield CHECK.skip("/dev/shm", "only files were looked at, not where a job would run")  # noqa: S108
        return
    if environment.image is not None:
        yield CHECK.skip(shared.path, "its size is settled when the image is run (--shm-size)")
        return
    if environment.torch is None:
        yield CHECK.skip(shared.path, "no PyTorch is installed, whose data loaders share memory")
        return
    wrong = _unusable(shared)
    if wrong is None and shared.size is not None and shared.size < NEEDED:
        wrong = (
            f"has {shared.size >> 20} MiB: {WORKERS} workers of a data loader need {NEEDED >> 20}"
            " for batches of 32 images, and are killed by a bus error (NCCL shares memory there too)"
        )
    if wrong is None:
        size = f"{shared.size >> 20} MiB" if shared.size is not None else "no limit that it tells"
        yield CHECK.finding(shared.path, Status.PASS, f"has {size}", domain=Domain.HOST)
        return
    yield CHECK.finding(shared.path, Status.WARN, wrong, domain=Domain.HOST,
                        remedy=_REMEDY.format(size="8g", path=shared.path),
                        evidence={"size": shared.size, "needed": NEEDED})  # fmt: skip


def _unusable(shared: SharedMemory) -> str | None:
    if not shared.exists:
        return "is not there: no data loader with workers can start"
    if not shared.writable:
        return "cannot be written by this user: no data loader with workers can start"
    return None


def _written(machine: Machine, shared: SharedWrite, memory: HostMemory | None) -> Finding:
    """Judge what was really written; it fails only where somebody said how much is needed."""
    asked = machine.asked.shm is not None or machine.asked.workers is not None
    wrong = _unusable(shared.folder) or _too_small(machine, shared, memory)
    room = memory.room if memory is not None else None
    status, message = Status.PASS, f"took {_mib(shared.written)} of {_need(machine, shared)}"
    if wrong is not None:
        status, message = Status.FAIL if asked else Status.WARN, wrong
    elif room is not None and room < shared.wanted:
        status = Status.WARN
        message = f"is memory, of which {_mib(room)} are left for {_need(machine, shared)}"
    elif shared.written < shared.wanted:
        message += f"; more was not tried, and it tells of {_mib(shared.free)}"
    size = f"{max(-(-shared.wanted >> 30), 8)}g"
    remedy = _REMEDY.format(size=size, path=shared.folder.path)
    evidence: dict[str, Json] = {
        "wanted_bytes": shared.wanted,
        "tried_bytes": shared.tried,
        "written_bytes": shared.written,
        "refused": shared.refused,
        "size_bytes": shared.folder.size,
        "free_bytes": shared.free,
        "memory_limit_bytes": memory.limit if memory is not None else None,
        "filesystem": shared.filesystem,
    }
    return CHECK.finding(shared.folder.path, status, message, domain=Domain.HOST,
                         remedy="" if status is Status.PASS else remedy,
                         evidence=evidence)  # fmt: skip


def _too_small(machine: Machine, shared: SharedWrite, memory: HostMemory | None) -> str | None:
    """Say why what is wanted cannot lie there; the kernel's word comes before arithmetic."""
    need = _need(machine, shared)
    if shared.refused is not None:
        killed = ": who maps more is killed by a bus error" if shared.refused == "ENOSPC" else ""
        return f"took {_mib(shared.written)} of {need}, then {shared.refused}{killed}"
    if shared.free is not None and shared.free < shared.wanted:
        return f"has {_mib(shared.free)} free of {need}"
    bound = memory.bound if memory is not None else None
    if bound is not None and bound < shared.wanted:
        return f"is memory, of which {_mib(bound)} may be taken for {need}"
    return None


def _need(machine: Machine, shared: SharedWrite) -> str:
    if machine.asked.shm is not None:
        return f"the {_mib(shared.wanted)} that were asked for (--shm)"
    workers = WORKERS if machine.asked.workers is None else machine.asked.workers
    return f"the {_mib(shared.wanted)} of a data loader with {workers} workers"


def _mib(size: int | None) -> str:
    return "no limit" if size is None else f"{size >> 20} MiB"


CHECK = Check(
    id="dev-shm-is-large-enough",
    claim="Processes of one job can share as much memory as data loaders with workers need.",
    how=(
        "Asks the file system at /dev/shm for its size and for the right to write, and compares it "
        "with what 8 workers of PyTorch's data loader keep there: it warns, because how many a job "
        "has is not known. `preflight` writes to it what the job needs (--shm, --workers), up to half "
        "of the memory that is left, and fails where that is not taken."
    ),
    classes=("F3",),
    remedy="Start the container with --shm-size, or mount a larger /dev/shm.",
    runs=("machine",),
    run=_run,
)
