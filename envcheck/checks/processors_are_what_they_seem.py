"""The processors that a job counts are those that it may use, and they are not taken by others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from envcheck.checks.check import Check, Question
from envcheck.core.host import Processors
from envcheck.core.machine import Machine
from envcheck.core.model import Domain, Finding, Json, Status

# "If steal time is greater than 10 % ... the VM is likely running slower than it should": D. Haynes,
# Understanding CPU Steal Time, Scout APM, 2013.
STEAL = 0.10
# The kernel counts in ticks of 10 ms (USER_HZ); of half a second one tick is a fifth of that share,
# of less it may be all of it.
ENOUGH = 0.5


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    found = machine.host.processors if machine is not None and machine.host is not None else None
    if machine is None or found is None or found.seen is None:
        yield CHECK.skip("processors", question.why_not_looked("host.processors"))
        return
    usable = found.seen if found.allowed is None else found.allowed
    own = list(_of_quota(found, usable, machine.asked.workers))
    yield from own
    others = [*_of_others(found), *_of_nodes(machine, found)]
    yield from others
    if not own and not others:
        limit = f"{found.quota:g} allowed" if found.quota is not None else "no quota"
        message = f"{usable} of {found.seen} may be used, {limit}"
        if found.steal is None:
            message += "; the time that others take cannot be seen"
        yield _of("processors", found, Status.PASS, message)


def _of_quota(found: Processors, usable: int, workers: int | None) -> Iterator[Finding]:
    if found.quota is not None and found.quota < usable:
        threads = max(math.floor(found.quota), 1)
        message = (
            f"a job counts {usable} processors and may use the time of {found.quota:g}: with a"
            " thread for each it is held up most of the time"
        )
        remedy = f"export OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads}"
        if workers is None or workers > threads:
            remedy += f"; num_workers={threads} at most"
        # A quota is what was rented, and variables mend it; asked for was what it does not give.
        asked = workers is not None and workers > threads
        yield replace(_of("quota", found, Status.WARN, message, remedy), required=asked)
        return
    if workers is not None and workers > usable:
        message = f"{workers} workers of a data loader share {usable} processors"
        yield _of("workers", found, Status.WARN, message, f"num_workers={usable} at most")


def _of_others(found: Processors) -> Iterator[Finding]:
    if found.steal is not None and found.steal > STEAL and (found.wanted or 0) >= ENOUGH:
        message = (
            f"the hypervisor gave {found.steal:.0%} of the wanted time to other machines while"
            " this was looked at"
        )
        yield _of("host", found, Status.WARN, message, "measure again; else use another host")
    # More that run or wait than there are processors is what too much work means.
    if found.load is not None and found.seen is not None and found.load > found.seen:
        message = f"{found.load:.0f} processes run or wait on the host's {found.seen} processors"
        yield _of("host", found, Status.WARN, message, "end what else runs, or use another host")


def _of_nodes(machine: Machine, found: Processors) -> Iterator[Finding]:
    """Name cards that are only reached through other processors than those of this process."""
    system = machine.host.system if machine.host is not None else None
    if system is None or not system.own_nodes:
        return
    for card in system.cards:
        node = f"/dev/nvidia{card.minor}"
        if card.node in (None, *system.own_nodes) or node not in machine.cards.nodes:
            continue
        own = ", ".join(map(str, system.own_nodes))
        message = (
            f"{node} hangs at NUMA node {card.node}, and this process may run on node {own} alone:"
            " copies cross from one to the other"
        )
        yield _of("NUMA", found, Status.WARN, message, f"docker run --cpuset-cpus with the processors"
                  f" of node {card.node} (lscpu lists them)")  # fmt: skip


def _of(
    subject: str, found: Processors, status: Status, message: str, remedy: str = ""
) -> Finding:  # fmt: skip
    evidence: dict[str, Json] = {
        "seen": found.seen,
        "allowed": found.allowed,
        "quota": found.quota,
        "model": found.model,
        "load_1min": found.load,
        "wanted_seconds": found.wanted,
        "steal_share": found.steal,
        "busy_share": found.busy,
        "waiting_percent_1min": dict(found.pressure),
    }
    return CHECK.finding(subject, status, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="processors-are-what-they-seem",
    claim="The processors that a job counts are those that it may use, and others leave them to it.",
    how=(
        "Compares the processors that a process may run on with the quota of the control groups "
        "above it (nothing rests on that unless --workers asks for more), the load of the host with its processors, and counts for a second of work how much "
        "of the wanted time a hypervisor gives to other machines. Names cards at a NUMA node where "
        "this process may use no processor."
    ),
    remedy="Set OMP_NUM_THREADS and num_workers to what may be used, or use another host.",
    runs=("machine",),
    run=_run,
)
