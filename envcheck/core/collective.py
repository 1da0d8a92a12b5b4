"""What the cards of one machine did with one another through NCCL: facts, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envcheck.core.compiled import Outcome

WITHOUT_P2P = {"NCCL_P2P_DISABLE": "1"}
"""What keeps NCCL from copies between cards. Source: NCCL user guide, environment variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One step whose result is not what it must be to the last bit."""

    step: str
    """`all_reduce fp32`."""
    elements: int
    """That differ."""
    of: int
    position: int
    """Of the first that differs, with what it must be and what it is."""
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process on one card."""

    rank: int
    outcome: Outcome
    message: str = ""
    """Why it failed; empty when it did not."""
    reached: str = ""
    """The step that it was at when it ended; `end` when it did all of them."""
    wrong: tuple[Wrong, ...] = ()
    warnings: tuple[str, ...] = ()
    """What NCCL itself said is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """All steps once, with certain variables set."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Beyond those of the environment."""
    ranks: tuple[Rank, ...] = ()
    transports: tuple[str, ...] = ()
    """By which way NCCL says that cards are connected: `P2P/CUMEM`, `SHM`, `NET/Socket`."""
    bytes: int | None = None
    """Of the all-reduce that was measured, on each card; None when it did not come to that."""
    milliseconds: float | None = None
    """Of it, the median, on the slowest card."""
    bus: float | None = None
    """1e9 bytes a second through each card's link, as nccl-tests counts it."""
    seconds: float = 0.0
    """That the mode took, the start of the processes included."""
    left: str = ""
    """Why it was not run; empty when it was."""

    @property
    def ended(self) -> bool:
        """Whether each process came to its end."""
        return bool(self.ranks) and all(r.outcome.ok for r in self.ranks)

    @property
    def holds(self) -> bool:
        """Whether each process came to its end with exact results."""
        return self.ended and not any(r.wrong for r in self.ranks)

    @property
    def hung(self) -> bool:
        """Whether a process was killed because it took too long."""
        return any(r.outcome.status == "timed-out" for r in self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Sums and copies over all visible cards, one process on each."""

    backend: str
    """`NCCL 2.30.7`; `gloo` for the processor."""
    cards: int
    """That are visible."""
    deadline: float = 0.0
    """Seconds that the processes of a mode had."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """`NCCL_*` that the environment sets."""
    modes: tuple[Mode, ...] = ()
    """As the environment has it, and once more without copies between cards."""
    left: str = ""
    """Why nothing was exchanged; empty when something was."""
