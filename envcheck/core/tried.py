"""What one card did, asked through the driver alone, without PyTorch: facts, unjudged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Its memory, the link to the host, and its launches."""

    uuid: str
    """As in `DriverCard`."""
