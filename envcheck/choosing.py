"""Which checks are asked: `--only` and `--skip`, and what has to be run for them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

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
                begun = [each for each in known if each.startswith(name)]
                near = begun or difflib.get_close_matches(name, known, 1)
                hint = f"{option} {near[0]}" if near else "envcheck explain lists all checks"
                message = f"{option} {name}: there is no such check"
                raise UsageError(message, remedy=hint)
    left = frozenset(wanted or known) - frozenset(unwanted)
    if not left:
        message = "--only and --skip leave no check"
        raise UsageError(message, remedy="name another one, or leave one option out")
    return left


def parts(asked: frozenset[str]) -> tuple[str, ...]:
    """Return what has to be run on a card for these checks, in order of value."""
    needed = {part for check in CHECKS if check.id in asked for part in check.runs}
    return tuple(part for part in PARTS if part in needed)
