"""The card's memory is about as fast as its maker says."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import tries
from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Json, Status
from envcheck.core.tried import Copied

# Copies on healthy cards, the driver's own among them, reached 74 to 75 % of the maker's number on
# eight H100 SXM (2475 to 2515 of 3350 GB/s, NVIDIA/nccl#1264), 74 % on a GH200 (2979 of 4000,
# UoB-HPC/BabelStream#194) and 89 % on an A800 (1727 of 1935, mli/transformers-benchmarks#4); here
# the better of two kinds of copies counts. Below all of them something takes a part of it.
_WARN = 0.7
# Half: of a card whose memory runs at half its clock or over half its bus, whatever the reason.
_FAIL = 0.5


def _run(question: Question) -> Iterator[Finding]:
    for item in tries.with_step(question, CHECK, "copied"):
        if isinstance(item, Finding):
            yield item
        elif (copied := item[1].copied) is not None:
            known = tries.limits(question, item[1])
            yield _judge(item[0], copied, known.bandwidth if known is not None else None)


def _judge(subject: str, copied: Copied, limit: float | None) -> Finding:
    evidence: dict[str, Json] = {
        "measured_gb_per_s": copied.rate,
        "by_kernel_gb_per_s": copied.by_kernel,
        "by_driver_gb_per_s": copied.by_driver,
        "limit_gb_per_s": limit,
    }
    if limit is None:
        message = f"{copied.rate:.0f} GB/s; no number of the maker's is known to compare with"
        return CHECK.finding(subject, Status.PASS, message, domain=Domain.CARD, evidence=evidence)
    share = copied.rate / limit
    message = f"{copied.rate:.0f} GB/s, {share:.0%} of the maker's {limit:.0f}"
    if share >= _WARN:
        return CHECK.finding(subject, Status.PASS, message, domain=Domain.CARD, evidence=evidence)
    status = Status.FAIL if share < _FAIL else Status.WARN
    remedy = (
        "nvidia-smi -q -d CLOCK,PERFORMANCE,PIDS says whether clocks are held down or another"
        " process is at work; if neither, give the machine back"
    )
    return CHECK.finding(subject, status, message, remedy=remedy, domain=Domain.CARD,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="device-memory-is-fast",
    claim="The card's memory is about as fast as its maker says.",
    how=(
        "Copies up to 2 GiB inside of the card's memory, by a kernel and by the driver, takes the "
        "better median of bytes read and written, and compares with the maker's number: a warning "
        "below 70 %, a fail below half."
    ),
    classes=("K",),
    remedy="Look at clocks and at other processes on the card, else give the machine back.",
    runs=("machine",),
    run=_run,
)
