"""What goes between host and card arrives as it was sent."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import tries
from envcheck.checks.check import Check, Question
from envcheck.core.model import Domain, Finding, Status
from envcheck.core.tried import Link


def _run(question: Question) -> Iterator[Finding]:
    for item in tries.with_step(question, CHECK, "link"):
        if isinstance(item, Finding):
            # That the step failed is told by `host-link-is-fast`.
            yield CHECK.skip(item.subject, item.message)
        elif (link := item[1].link) is not None:
            yield _judge(item[0], link)


def _judge(subject: str, link: Link) -> Finding:
    evidence = {"bytes_each_way": link.size, "wrong_words": link.wrong}
    if not link.wrong:
        message = f"{link.size >> 20} MiB came back from the host as they were sent"
        return CHECK.finding(subject, Status.PASS, message, domain=Domain.HOST, evidence=evidence)
    message = f"{link.wrong} word(s) of 8 bytes in {link.size >> 20} MiB are wrong after a copy"
    if link.first:
        first = link.first[0]
        message += f" {first.side}: at {first.offset:#x} {first.found} instead of {first.expected}"
    remedy = "give the machine back: its link or its memory spoils data without a word"
    return CHECK.finding(subject, Status.FAIL, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="host-link-keeps-data",
    claim="What is copied between host and card arrives as it was sent.",
    how=(
        "The card makes 256 MiB of random words, sends them to the host and gets them back into "
        "memory that was overwritten meanwhile, and compares all of them; the host compares some, "
        "and those that came back wrong, so that the way on which they were lost is known."
    ),
    classes=("K",),
    remedy="Use another machine: its link, or its memory, changes data without a word.",
    runs=("machine",),
    run=_run,
)
