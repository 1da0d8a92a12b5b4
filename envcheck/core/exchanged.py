"""What several cards of one machine did with one another: facts, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongCopy:
    """A copy that did not bring what was sent."""

    size: int
    """Bytes that were copied."""
    offset: int
    """Of the first wrong byte, from the start of what was copied."""
    by: str = "driver"
    """`driver`, or `kernel` where a kernel of the source's wrote to the target's memory."""
    looks: str
    """`zeros`, `untouched` (what stood there before), `beyond` (bytes beside the target were
    written too), or `other`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Copies from one card's memory to another's, one way, by one path."""

    source: int
    """Numbers of the cards, in the order of `DriverFacts.cards`."""
    target: int
    direct: bool
    """Whether the cards were let into each other's memory before (peer access); else the driver
    takes the way through the host."""
    copied: int = 0
    """Bytes that were compared."""
    wrong: tuple[WrongCopy, ...] = ()
    rate: float | None = None
    """1e9 bytes a second, the best of several; None where it was not measured."""
    error: str = ""
    """What the driver said, or how the process ended; empty where all calls succeeded."""
    hung: bool = False
    """Whether it did not come to an end, and was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """Copies between each ordered pair of cards."""

    cards: tuple[str, ...]
    """Their UUIDs, in the order of `DriverFacts.cards`."""
    claimed: tuple[tuple[int, int], ...] = ()
    """Source and target, where the driver says that one may be let into the other's memory."""
    passages: tuple[Passage, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    """Ways that were not tried (`0 -> 1`, or `0 -> 1, directly`), and why."""
