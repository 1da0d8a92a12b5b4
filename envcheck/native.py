"""The card of this machine as a target: `--arch native`."""

from __future__ import annotations

from functools import cache

from envcheck import targets
from envcheck.core import unusable
from envcheck.core.cards import Cards
from envcheck.core.model import Target
from envcheck.engine import local
from envcheck.errors import FileUnavailable


@cache
def cards() -> Cards:
    """Ask the driver once."""
    return local.native()


def target() -> Target:
    """Return the first card that a job would see; raises FileUnavailable with the cause."""
    found = cards()
    cause = unusable.unusable(found)
    if cause is not None:
        raise FileUnavailable(cause.message, remedy=cause.remedy)
    return targets.of_card(found.cards[0])
