"""The card of this machine as a target: `--arch native`."""

from __future__ import annotations

from functools import cache

from envcheck import targets
from envcheck.core import unusable
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverCard
from envcheck.core.model import Target
from envcheck.errors import FileUnavailable
from envcheck.guest import cards as guest


@cache
def cards() -> Cards:
    """Ask the driver once."""
    return guest.look()


def card() -> DriverCard | None:
    """Return the first card that a job would see, None where it would see none."""
    told = cards().driver
    return told.cards[0] if told is not None and told.cards else None


def target() -> Target:
    """Return the target that this card is; raises FileUnavailable with the cause without one."""
    cause, first = unusable.unusable(cards()), card()
    if cause is not None or first is None:
        message, remedy = (cause.message, cause.remedy) if cause is not None else ("no card", "")
        raise FileUnavailable(message, remedy=remedy)
    return targets.of_card(first)
