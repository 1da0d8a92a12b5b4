"""What a place to export to has to do, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from envcheck.exporting.looking import Stamp

CHANGED = "it changed while it was copied"
ENDED = "the export was ended before it was done"


class NotBrought(OSError):
    """A file did not arrive: it is not what it was when it was looked at, or nobody waits for it."""


@dataclass(slots=True, kw_only=True)
class Delivery:
    """What became of the files of one round."""

    arrived: dict[str, str] = field(default_factory=dict)
    """Files that are there now, with the hash that was verified there."""
    copied: int = 0
    """How many of them were not there before."""
    size: int = 0
    """Bytes of those."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why a file did not arrive; an empty name for what concerns all of them."""


class Target(Protocol):
    """A place to export to."""

    @property
    def name(self) -> str:
        """As the user named it."""

    def prepare(self) -> None:
        """Make sure that it can be written to; raises FileUnavailable."""

    def deliver(
        self, root: str, files: Mapping[str, Stamp], cancelled: Callable[[], bool]
    ) -> Delivery:
        """Bring finished files there, and note them in its MANIFEST.sha256."""

    def close(self) -> None:
        """Let others export there."""
