"""Which checks are asked: `--only` and `--skip`, and what has to be run for them."""

from __future__ import annotations

from collections.abc import Iterable

from envcheck import meant
from envcheck.checks import CHECKS
from envcheck.core.request import PARTS
from envcheck.errors import UsageError


def chosen(only: Iterable[str], skip: Iterable[str]) -> frozenset[str]:
    """Return the ids of the checks that are asked; raises UsageError for one that there is not."""
    known = [check.id for check in CHECKS]
    wanted, unwanted = list(only), list(skip)
    for option, names in (("--only", wanted), ("--skip", unwanted)):
        for name in names:
            if name not in known:
                raise unknown(name, asked_by=option)
    left = frozenset(wanted or known) - frozenset(unwanted)
    if not left:
        message = "--only and --skip leave no check"
        raise UsageError(message, remedy="name another one, or leave one option out")
    return left


def unknown(name: str, *, asked_by: str) -> UsageError:
    """Return the error of a name that no check has, with the one that is meant."""
    known = [check.id for check in CHECKS]
    near = meant.nearest(name, known)
    message = f"{asked_by} {name}: there is no such check{meant.question(name, known)}"
    remedy = f"{asked_by} {near}" if near else "envcheck explain lists all checks"
    return UsageError(message, remedy=remedy)


def parts(asked: frozenset[str]) -> tuple[str, ...]:
    """Return what has to be run on a card for these checks, in order of value."""
    needed = {part for check in CHECKS if check.id in asked for part in check.runs}
    return tuple(part for part in PARTS if part in needed)
