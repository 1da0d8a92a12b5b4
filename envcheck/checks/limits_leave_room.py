"""A job may open the files, start the processes and lock the memory that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.host import Bounds
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.shared_memory import BATCHES, WORKERS

# What the kernel gives the first process (INR_OPEN_CUR in include/uapi/linux/fs.h); systemd and
# docker give as much or more.
FILES = 1024
# Of supervised learning a batch has two at least: what is looked at, and what it is.
TENSORS = 2


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    host = machine.host if machine is not None else None
    if machine is None or host is None or host.bounds is None:
        yield CHECK.skip("limits", question.why_not_looked("host.bounds"))
        return
    bounds = host.bounds
    workers = WORKERS if machine.asked.workers is None else machine.asked.workers
    seen = host.processors.seen if host.processors is not None else None
    found = [
        each
        for each in (_files(bounds, workers), _tasks(bounds, workers, seen or 1), _locked(bounds))
        if each is not None
    ]
    for subject, message, remedy in found:
        yield _of(subject, bounds, Status.WARN, message, remedy)
    if not found:
        message = f"{_count(bounds.files)} open files, {_count(bounds.tasks)} processes"
        yield _of("limits", bounds, Status.PASS, message)


def _files(bounds: Bounds, workers: int) -> tuple[str, str, str] | None:
    """PyTorch keeps a descriptor for each tensor that processes share (strategy
    `file_descriptor`, the default; pytorch/pytorch#973)."""  # noqa: D205, D209
    if bounds.files is None or bounds.files < 0:
        return None
    needed = max(FILES, workers * BATCHES * TENSORS)
    if bounds.files >= needed:
        return None
    message = (
        f"{bounds.files} files may be open, fewer than {needed}: each tensor that {workers} workers"
        " of a data loader hand over takes one (received 0 items of ancdata)"
    )
    hard = bounds.files_hard
    if hard is not None and (hard < 0 or hard >= needed):
        return "open files", message, f"ulimit -n {needed if hard < 0 else hard}"
    remedy = (
        f"docker run --ulimit nofile={needed}:{needed}, or"
        " torch.multiprocessing.set_sharing_strategy('file_system')"
    )
    return "open files", message, remedy


def _tasks(bounds: Bounds, workers: int, seen: int) -> tuple[str, str, str] | None:
    """A worker is a process with a thread that feeds its queue; OpenMP starts a thread for each
    processor in the process that trains."""  # noqa: D205, D209
    needed = 2 * workers + seen
    if bounds.tasks is not None and bounds.tasks_now is not None:
        left = bounds.tasks - bounds.tasks_now
        if left < needed:
            message = (
                f"{left} more processes and threads may be started: {workers} workers and a"
                f" thread on each of {seen} processors are {needed}"
            )
            return "processes", message, "docker run --pids-limit=-1"
    if bounds.processes is not None and 0 <= bounds.processes < needed:
        message = (
            f"this user may have {bounds.processes} processes and threads: {workers} workers and a"
            f" thread on each of {seen} processors are {needed}"
        )
        return "processes", message, "ulimit -u unlimited, or docker run --ulimit nproc=-1"
    return None


def _locked(bounds: Bounds) -> tuple[str, str, str] | None:
    """What InfiniBand reads and writes is locked memory; what CUDA pins is not counted."""
    if not bounds.infiniband or bounds.locked is None or bounds.locked < 0:
        return None
    message = (
        f"{bounds.locked >> 10} KiB of memory may be locked: NCCL registers its buffers with"
        " InfiniBand, which is here"
    )
    return "locked memory", message, "docker run --ulimit memlock=-1 (ulimit -l unlimited)"


def _count(number: int | None) -> str:
    return "any number of" if number is None or number < 0 else str(number)


def _of(subject: str, bounds: Bounds, status: Status, message: str, remedy: str = "") -> Finding:
    evidence: dict[str, Json] = {
        "nofile_soft": bounds.files,
        "nofile_hard": bounds.files_hard,
        "memlock_bytes": bounds.locked,
        "nproc": bounds.processes,
        "tasks_limit": bounds.tasks,
        "tasks_now": bounds.tasks_now,
        "infiniband": bounds.infiniband,
    }
    return CHECK.finding(subject, status, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="limits-leave-room",
    claim="A job may open the files, start the processes and lock the memory that it needs.",
    how=(
        "Compares RLIMIT_NOFILE with what the kernel gives by itself and with the tensors that a "
        "data loader's workers hand over, what the control group leaves of processes with those of "
        "the workers and of OpenMP, and asks for unlimited locked memory where there is InfiniBand."
    ),
    remedy="Raise the limit that the finding names, with ulimit or where the container is started.",
    runs=("machine",),
    run=_run,
)
