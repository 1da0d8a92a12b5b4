"""What NVML says of the cards: facts, unjudged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """NVML itself, and each card that it lists, before anything ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The same cards while they worked, and when they had."""
