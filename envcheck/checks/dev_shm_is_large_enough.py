"""Processes of one job can share as much memory as a data loader needs."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Status

# A data loader of 8 workers keeps two batches for each (prefetch_factor of PyTorch); one of 32
# images of 224 x 224 in float32 takes 19 MB. A container of docker has 64 MiB without --shm-size.
WORKERS, BATCHES, BATCH = 8, 2, 32 * 3 * 224 * 224 * 4
NEEDED = WORKERS * BATCHES * BATCH


def _run(question: Question) -> Iterator[Finding]:
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
    wrong = None
    if not shared.exists:
        wrong = "is not there: no data loader with workers can start"
    elif not shared.writable:
        wrong = "cannot be written by this user: no data loader with workers can start"
    elif shared.size is not None and shared.size < NEEDED:
        wrong = (
            f"has {shared.size >> 20} MiB: {WORKERS} workers of a data loader need {NEEDED >> 20}"
            " for batches of 32 images, and are killed by a bus error (NCCL shares memory there too)"
        )
    if wrong is None:
        size = f"{shared.size >> 20} MiB" if shared.size is not None else "no limit that it tells"
        yield CHECK.finding(shared.path, Status.PASS, f"has {size}", domain=Domain.HOST)
        return
    yield CHECK.finding(
        shared.path,
        Status.WARN,
        wrong,
        remedy="docker run --shm-size=8g (or --ipc=host); without a container:"
        f" mount -o remount,size=8g {shared.path}",
        domain=Domain.HOST,
        evidence={"size": shared.size, "needed": NEEDED},
    )


CHECK = Check(
    id="dev-shm-is-large-enough",
    claim="Processes of one job can share as much memory as data loaders with workers need.",
    how=(
        "Asks the file system at /dev/shm for its size and for the right to write, without writing "
        "to it, and compares it with what 8 workers of PyTorch's data loader keep there. It warns "
        "and does not fail, because how many workers a job has is not known."
    ),
    classes=("F3",),
    remedy="Start the container with --shm-size, or mount a larger /dev/shm.",
    run=_run,
)
