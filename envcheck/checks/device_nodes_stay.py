"""The cards' device nodes are still there, and may be opened, after the work."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.machine import Machine
from envcheck.core.model import Domain, Finding, Json, Status

_REPORTED = "NVIDIA/nvidia-container-toolkit#48"


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    if machine is None:
        yield CHECK.skip("/dev", question.why_not_looked("nodes_after"))
        return
    yield _after(machine, question)
    host = machine.host
    if host is not None and host.unlinked:
        message = (
            f"{len(host.unlinked)} nodes have no link in /dev/char ({host.unlinked[0]}): containers"
            f" under systemd lose the cards when it reloads ({_REPORTED})"
        )
        remedy = "nvidia-ctk system create-dev-char-symlinks --create-all"
        yield _of("/dev/char", Status.WARN, message, remedy, {"unlinked": host.unlinked})


def _after(machine: Machine, question: Question) -> Finding:
    before = machine.cards.nodes
    if machine.nodes_after is None:
        return CHECK.skip("/dev", question.why_not_looked("nodes_after"))
    if not before:
        return CHECK.skip("/dev", "there was no node of a card to begin with")
    gone = tuple(node for node in before if node not in machine.nodes_after)
    evidence: dict[str, Json] = {"before": before, "after": machine.nodes_after}
    if gone:
        message = (
            f"{', '.join(gone)} could be opened at the start, and not any more at the end: a job"
            " that runs longer loses its cards"
        )
        remedy = "use another host; on its own host: docker run with --device for each node"
        return _of("/dev", Status.FAIL, message, remedy, evidence)
    message = f"{len(before)} nodes could be opened at the start and at the end"
    return _of("/dev", Status.PASS, message, "", evidence)


def _of(
    subject: str, status: Status, message: str, remedy: str, evidence: dict[str, Json]
) -> Finding:
    return CHECK.finding(subject, status, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="device-nodes-stay",
    claim="The cards' device nodes are still there, and may be opened, when all was done.",
    how=(
        "Lists the nodes that this process may open at the start and at the end of `preflight`: a "
        "control group whose rules are rewritten takes cards from a running container. Outside of "
        "containers it looks for the links in /dev/char, without which that happens."
    ),
    classes=("F2",),
    remedy="Use another host, or start the container with --device for each node.",
    runs=("machine",),
    run=_run,
)
