"""Two builds from the same recipe gave the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Json, Status

_SHOWN = 5


def _run(question: Question) -> Iterator[Finding]:
    rebuilt, environment = question.inventory.rebuilt, question.inventory.environment
    if rebuilt is None or environment is None or environment.content is None:
        yield CHECK.skip("content", "it was not built twice: --check-reproducible does that")
        return
    evidence: dict[str, Json] = {
        "first": rebuilt.first,
        "second": environment.content,
        "differences": rebuilt.differences,
    }
    if rebuilt.first == environment.content:
        message = f"two builds gave the content {environment.content}"
        yield CHECK.finding("content", Status.PASS, message, evidence=evidence)
        return
    named = "; ".join(rebuilt.differences[:_SHOWN])
    more = f"; and {rebuilt.differing - _SHOWN} more" if rebuilt.differing > _SHOWN else ""
    yield CHECK.finding(
        "content",
        Status.ERROR,
        f"{rebuilt.differing} path(s) differ between two builds: {named}{more}",
        remedy="pin what these files come from, or build them without times and host names",
        domain=Domain.IMAGE,
        evidence=evidence,
    )


CHECK = Check(
    id="build-is-reproducible",
    claim="Two builds from the same recipe give the same content.",
    how=(
        "Builds once more without a cache and compares path, type, mode, owner, link target and "
        "bytes of everything. What was verified is then not what the next build gives: a "
        "difference makes the verdict inconclusive, and is not said to be incompatible."
    ),
    classes=("F1",),
    remedy="Look at the files that differ: a lock, a base digest or a build that embeds the time.",
    run=_run,
)
