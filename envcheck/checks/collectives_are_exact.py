"""Several cards sum and copy through NCCL: it comes to an end, and to the right numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.collective import Collective, Mode, Rank
from envcheck.core.model import Domain, Finding, Json, Status

_SLOWER = 2.0
"""How much faster the way through the host's memory must be to be worth a word: it crosses the
same links and the memory besides, so it is not faster at all but for noise."""
_SHARED_MEMORY = re.compile(r"(?i)shared memory segment|/dev/shm|No space left")
# What maintainers and users found behind it: NVIDIA/nccl#199 and #2079, nccl-tests#117,
# NCCL user guide, "Troubleshooting", GPU Direct.
_LIKELY = (
    "copies between cards do not work here: PCIe ACS or the IOMMU redirects them, or these cards"
    " (GeForce, cards without NVLink) claim what the host cannot do"
)
_WORKAROUND = "export NCCL_P2P_DISABLE=1"


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    found = executed.collective if executed is not None else None
    if found is None:
        missing = question.machine is not None and executed is None
        why = question.why_not_executed if missing else question.why_not_looked("collective")
        yield CHECK.skip("collectives", why)
    elif found.left or not found.modes:
        yield CHECK.skip("collectives", found.left or "nothing was exchanged")
    else:
        first, *rest = found.modes
        second = next((mode for mode in rest if not mode.left), None)
        if first.holds:
            yield from _working(found, first, second)
        else:
            yield _broken(found, first, second)


def _working(found: Collective, first: Mode, second: Mode | None) -> Iterator[Finding]:
    """Judge collectives that work as they are: is there something to say nevertheless."""
    message = f"{found.cards} cards, {_way(first)}: exact, {_rate(first)}"
    yield CHECK.finding("collectives", Status.PASS, message, domain=Domain.HOST,
                        evidence=_evidence(found))  # fmt: skip
    if second is None:
        return
    if not second.holds:
        message = f"without copies between cards: {_fault(second)}"
        yield CHECK.finding("collectives without P2P", Status.WARN, message,
                            remedy=_remedy(second) or "leave NCCL_P2P_DISABLE unset here",
                            domain=Domain.HOST, evidence=_evidence(found))  # fmt: skip
    elif first.bus and second.bus and second.bus > _SLOWER * first.bus:
        message = (
            f"{_rate(first)} with copies between cards, {_rate(second)} without:"
            " PCIe ACS or the IOMMU redirects them"
        )
        yield CHECK.finding("collectives without P2P", Status.WARN, message, remedy=_WORKAROUND,
                            domain=Domain.HOST, evidence=_evidence(found))  # fmt: skip


def _broken(found: Collective, first: Mode, second: Mode | None) -> Finding:
    """Judge collectives that hang, fail or give wrong numbers."""
    fault = _fault(first)
    if second is not None and second.holds:
        message, remedy, domain = f"{fault}; {_LIKELY}", _WORKAROUND, Domain.HOST
    else:
        too = "; without copies between cards too" if second is not None else ""
        own = "use a machine whose cards work together, or one card: CUDA_VISIBLE_DEVICES=0"
        message, remedy = fault + too, _remedy(first) or own
        domain = Domain.HOST if _remedy(first) or not first.ended else Domain.CARD
    return CHECK.finding("collectives", Status.FAIL, message, remedy=remedy, domain=domain,
                         evidence=_evidence(found))  # fmt: skip


def _fault(mode: Mode) -> str:
    """Say in one line what went wrong: who failed by himself before who waited for him."""
    failed = [r for r in mode.ranks if not r.outcome.ok]
    alone = [r for r in failed if r.outcome.status != "timed-out"]
    if alone:
        return (
            f"the process of card {alone[0].rank} failed at {alone[0].reached}: {_said(alone[0])}"
        )
    if failed:
        where = ", ".join(f"card {r.rank} at {r.reached}" for r in mode.ranks)
        return f"a collective hangs, or hardly moves ({where}): {_said(failed[0])}"
    rank, wrong = next((r, w) for r in mode.ranks for w in r.wrong)
    return (
        f"{wrong.step}: {wrong.elements} of {wrong.of} elements are wrong on card {rank.rank}"
        f" ({wrong.found} instead of {wrong.expected})"
    )


def _said(rank: Rank) -> str:
    return f"{rank.message} ({rank.warnings[0]})" if rank.warnings else rank.message


def _remedy(mode: Mode) -> str:
    """Return a remedy of which NCCL itself said enough; empty where it did not."""
    if any(_SHARED_MEMORY.search(line) for r in mode.ranks for line in (r.message, *r.warnings)):
        return "docker run --shm-size=1g, or a host with a larger /dev/shm"
    return ""


def _way(mode: Mode) -> str:
    return f"via {', '.join(mode.transports)}" if mode.transports else "by a way that is not told"


def _rate(mode: Mode) -> str:
    return f"{mode.bus:.4g} GB/s" if mode.bus else "not measured"


def _evidence(found: Collective) -> dict[str, Json]:
    """Return what was measured; bandwidths are 1e9 bytes a second as nccl-tests counts them."""
    return {
        "backend": found.backend,
        "cards": found.cards,
        "deadline_seconds": found.deadline,
        "variables": found.variables,
        "modes": tuple(
            {
                "variables": mode.variables,
                "transports": mode.transports,
                "bus_gb_per_s": mode.bus,
                "bytes": mode.bytes,
                "milliseconds": mode.milliseconds,
                "seconds": mode.seconds,
                "reached": tuple(r.reached for r in mode.ranks),
                "left": mode.left,
            }
            for mode in found.modes
        ),
    }


CHECK = Check(
    id="collectives-are-exact",
    claim="Sums and copies over all visible cards end, with exact results.",
    how=(
        "Starts one process for each visible card, which sum, gather and broadcast integers "
        "through NCCL with a deadline, once as the environment has it and once with "
        "NCCL_P2P_DISABLE=1; every element is compared, and the way is read from what NCCL says."
    ),
    classes=("I3", "J"),
    remedy="Where it works without copies between cards: export NCCL_P2P_DISABLE=1.",
    runs=("machine",),
    run=_run,
)
