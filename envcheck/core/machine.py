"""The machine around a card, as `envcheck preflight` finds it: facts, unjudged.

None or empty is what was not looked at; why stands in `left` or in the part itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envcheck.core.cards import Cards
from envcheck.core.exchanged import Exchanged
from envcheck.core.host import Host
from envcheck.core.limits import Expected
from envcheck.core.managed import Managed, Watched
from envcheck.core.tried import Tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants of the machine; None where nobody said."""

    expect: str | None = None
    """Card or architecture that was rented: `rtx-5090`."""
    expected: Expected | None = None
    """What `expect` is in the catalogue: `targets.expected` finds it."""
    gpus: int | None = None
    """Cards that a job must see."""
    disk: int | None = None
    """Bytes that must be free in `folder`."""
    shm: int | None = None
    """Bytes that /dev/shm must take."""
    workers: int | None = None
    """Processes of the job's DataLoader."""
    folder: str = "."
    """Where the data will lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found out about it, in the order in which it was."""

    asked: Asked
    cards: Cards
    """What the driver told, and which device nodes there were at the start."""
    host: Host | None = None
    """Processors, memory, disk, limits: what has nothing to do with a card."""
    managed: Managed | None = None
    """What NVML said of each card before anything ran."""
    tried: tuple[Tried, ...] = ()
    """What each card did, asked through the driver alone: memory, links, launches."""
    exchanged: Exchanged | None = None
    """What the cards did with one another; None where there is one, or it was not tried."""
    watched: Watched | None = None
    """What NVML said while the cards worked, and after."""
    nodes_after: tuple[str, ...] | None = None
    """Device nodes when all was done; None where that was not looked at."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Parts that were not looked at, by the name of the field, and why."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Parts that were looked at and gave no answer, by the name of the field, and how that ended;
    `environment` is the one that is no field."""
