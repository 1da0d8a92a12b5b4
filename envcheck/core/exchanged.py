"""What several cards of one machine did with one another: facts, unjudged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """Copies between each ordered pair of cards, and a collective over all of them."""
