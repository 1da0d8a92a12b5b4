"""Kernels start soon after they are launched."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import tries
from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.tried import Launches

# Five times what NVIDIA shows of a PyTorch program under a profiler, 20 us between a launch and
# the kernel's start (developer.nvidia.com/blog/understanding-the-visualization-of-overhead-and-
# latency-in-nsight-systems); an empty kernel from a bare loop takes less. Where a hypervisor takes
# part in each launch, as in WSL 2, it is more (developer.nvidia.com/blog/leveling-up-cuda-
# performance-on-wsl2-with-new-enhancements).
_SLOW = 100.0


def _run(question: Question) -> Iterator[Finding]:
    for item in tries.with_step(question, CHECK, "launches"):
        if isinstance(item, Finding):
            yield item
        elif (launches := item[1].launches) is not None:
            yield _judge(item[0], launches)


def _judge(subject: str, launches: Launches) -> Finding:
    evidence = {
        "answered_us": launches.answered,
        "enqueued_us": launches.enqueued,
        "launches": launches.count,
    }
    message = (
        f"{launches.answered:.0f} us from a launch to its end, {launches.enqueued:.1f} us for each"
        " that nobody waits for"
    )
    if launches.answered <= _SLOW:
        return CHECK.finding(subject, Status.PASS, message, domain=Domain.HOST, evidence=evidence)
    remedy = "fewer and larger kernels (CUDA graphs, torch.compile), or a host with free processors"
    return CHECK.finding(subject, Status.WARN, f"slow: {message}", remedy=remedy,
                         domain=Domain.HOST, evidence=evidence)  # fmt: skip


CHECK = Check(
    id="launches-are-quick",
    claim="A kernel is launched and done within a tenth of a millisecond where it does nothing.",
    how=(
        "Launches an empty kernel and waits for it, 300 times, and takes the median: a warning "
        "above 100 us. It is a warning only: jobs of large kernels do not notice."
    ),
    classes=("K",),
    remedy="Use CUDA graphs, or a host whose processors are not taken by others.",
    runs=("machine",),
    run=_run,
)
