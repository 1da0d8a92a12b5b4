"""How fast a card multiplies, and whether it keeps giving the same: facts, unjudged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """Products of matrices by PyTorch: their rates, and what repeating one gave."""
