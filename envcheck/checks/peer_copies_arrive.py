"""What one card sends to another arrives, and as it was sent."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.exchanged import Exchanged, Passage
from envcheck.core.model import Domain, Finding, Json, Status

# NVIDIA, CUDA Programming Guide, 3.4.2.5 (IOMMU, ACS): on bare metal the IOMMU must be disabled
# for copies between cards over PCIe, which else corrupt memory without a word. Seen: wrong bytes
# (NVIDIA/open-gpu-kernel-modules#1257), zeros (pytorch/pytorch#84803), hangs (NVIDIA/nccl#1999).
_AROUND = (
    "export NCCL_P2P_DISABLE=1 keeps NCCL off this path, other copies are not safe; on your own"
    " machine turn IOMMU and ACS off in the BIOS"
)
_NONE = "give the machine back: one card at a time can be used, not both"
_LOOKS = {
    "zeros": "zeros arrived",
    "untouched": "nothing was written there",
    "beyond": "bytes beside the target were written too",
    "other": "other bytes arrived",
}


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    exchanged = machine.exchanged if machine is not None else None
    if exchanged is None:
        told = machine.cards.driver if machine is not None else None
        single = told is not None and len(told.cards) == 1
        why = "there is one card" if single else question.why_not_looked("exchanged")
        yield CHECK.skip("cards", why)
        return
    good = []
    for passage in exchanged.passages:
        found = _judge(passage, exchanged)
        if found is None:
            good.append(passage)
        else:
            yield found
    for way, why in exchanged.left.items():
        yield CHECK.skip(f"card {way}", why)
    if good:
        yield _all_well(good)


def _judge(passage: Passage, exchanged: Exchanged) -> Finding | None:
    """Judge one way between two cards; None where it did what it should."""
    subject = f"card {passage.source} -> {passage.target}"
    path = "directly (peer access)" if passage.direct else "by way of the host"
    evidence: dict[str, Json] = {
        "source": exchanged.cards[passage.source],
        "target": exchanged.cards[passage.target],
        "direct": passage.direct,
        "compared_bytes": passage.copied,
        "gb_per_s": passage.rate,
    }
    if passage.error.endswith("(2)"):
        return CHECK.skip(subject, f"{path}: {passage.error}")
    if passage.wrong:
        first = passage.wrong[0]
        message = (
            f"a copy {path}{' by a kernel' if first.by == 'kernel' else ''} gives wrong bytes and"
            f" no error: {_LOOKS.get(first.looks, first.looks)}"
            f" at byte {first.offset} of {first.size}"
        )
    elif passage.hung:
        message = f"a copy {path} does not come to an end: {passage.error}"
    elif passage.error:
        message = f"a copy {path} fails: {passage.error}"
    else:
        return None
    remedy = _AROUND if passage.direct else _NONE
    return CHECK.finding(subject, Status.FAIL, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


def _all_well(good: list[Passage]) -> Finding:
    parts = []
    evidence: dict[str, Json] = {}
    for direct, path in ((True, "directly"), (False, "by way of the host")):
        rates = [p.rate for p in good if p.direct is direct and p.rate is not None]
        if rates:
            parts.append(f"{len(rates)} {path}, {min(rates):.1f} to {max(rates):.1f} GB/s")
    for passage in good:
        path = "direct" if passage.direct else "staged"
        evidence[f"{passage.source}->{passage.target} {path} gb_per_s"] = passage.rate
    message = f"copies between cards arrived as they were sent: {'; '.join(parts)}"
    return CHECK.finding("cards", Status.PASS, message, domain=Domain.HOST, evidence=evidence)


CHECK = Check(
    id="peer-copies-arrive",
    claim="What one card sends to another arrives there, as it was sent.",
    how=(
        "Copies 64 MiB, and a part of them from an odd place, between each two cards and both "
        "ways, over memory that was overwritten before; all bytes are compared, and those beside "
        "the target. First by way of the host, then with peer access where the driver claims it, by its own "
        "copies and by a kernel, as NCCL does. "
        "Each two cards have a process and a deadline: a hang is a fail too."
    ),
    classes=("I3", "J"),
    remedy="Set NCCL_P2P_DISABLE=1, turn IOMMU and ACS off in the BIOS, or use another machine.",
    runs=("machine",),
    run=_run,
)
