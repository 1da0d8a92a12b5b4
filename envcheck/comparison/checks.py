"""What became of each check, and of each of its subjects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from envcheck.core.compared import Checked
from envcheck.core.model import Finding, Report, Status

_WORST = (Status.FAIL, Status.ERROR, Status.WARN, Status.PASS, Status.SKIP)
_GOOD = (Status.PASS.value, Status.WARN.value)
_LOOKED = (*_GOOD, Status.FAIL.value)
_VERSION = re.compile(r" v?\d+\.[\w.+!-]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """All checks of two reports, side by side."""

    rows: tuple[Checked, ...] = ()
    seen: int = 0
    """Checks that looked at something in both."""
    unseen: tuple[str, ...] = ()
    """Those that passed in the first, and looked at nothing in the other."""
    unpaired: tuple[str, ...] = ()
    """Subjects that fail in the other and that the first does not name, where its check failed
    for others: whether the same thing passed there cannot be told."""


def compare(before: Report | None, after: Report | None) -> Judged:
    """Compare two reports; nothing where one of them is not there."""
    if before is None or after is None:
        return Judged()
    rows: list[Checked] = []
    for check in dict.fromkeys(f.check for f in (*before.findings, *after.findings)):
        old = [f for f in before.findings if f.check == check]
        new = [f for f in after.findings if f.check == check]
        rows.append(_row(check, None, old, new))
        rows += _subjects(check, old, new)
    whole = [r for r in rows if r.subject is None]
    lost = {r.check for r in whole if r.lost}
    return Judged(
        rows=tuple(rows),
        unpaired=tuple(
            f"{r.check}: {r.subject}"
            for r in rows
            if r.subject is not None and r.before is None and r.after == Status.FAIL.value
            if r.check not in lost
        ),
        seen=sum(r.before in _LOOKED and r.after in _LOOKED for r in whole),
        unseen=tuple(r.check for r in whole if r.before in _GOOD and r.after not in _LOOKED),
    )


def lost(rows: Sequence[Checked]) -> Iterator[str]:
    """Yield a line for each check that fails now: by its subjects where these are known."""
    by_subject = {r.check for r in rows if r.lost and r.subject is not None}
    for row in rows:
        if row.lost and row.subject is not None:
            yield f"{row.check}: {row.subject}: {row.message}"
        elif row.lost and row.check not in by_subject:
            yield f"{row.check}: {row.message}"


def _subjects(check: str, old: Sequence[Finding], new: Sequence[Finding]) -> Iterator[Checked]:
    """Yield the subjects whose status is another one.

    A subject carries the version of a package; that of another version is the same subject.
    """
    for stem in dict.fromkeys(_stem(f.subject) for f in (*old, *new)):
        row = _row(
            check,
            stem,
            [f for f in old if _stem(f.subject) == stem],
            [f for f in new if _stem(f.subject) == stem],
        )
        if row.before != row.after:
            yield row


def _stem(subject: str) -> str:
    return _VERSION.sub("", subject)


def _row(
    check: str, subject: str | None, old: Sequence[Finding], new: Sequence[Finding]
) -> Checked:
    first, other = _worst(old), _worst(new)
    before = None if first is None else first.status.value
    after = None if other is None else other.status.value
    decides = other is not None and other.required
    return Checked(
        check=check,
        subject=subject,
        before=before,
        after=after,
        message="" if other is None or before == after else other.message,
        lost=decides and before in _GOOD and after == Status.FAIL.value,
    )


def _worst(findings: Sequence[Finding]) -> Finding | None:
    """Return what decides: of the findings that a verdict rests on, else of all."""
    deciding = [f for f in findings if f.required] or findings
    return min(deciding, key=lambda f: _WORST.index(f.status), default=None)
