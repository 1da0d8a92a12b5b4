"""The host that a rental is a part of, as far as it can be seen from inside: facts, unjudged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Processors, memory, disks, limits and clocks."""
