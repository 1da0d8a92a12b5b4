"""What a smoke is: the operations that show whether one package works on a card."""

from __future__ import annotations

from dataclasses import dataclass

from envcheck.guest.ops.op import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """One package, as a value."""

    module: str
    """What is imported; the family of all its operations, so that it has its own process."""
    distributions: tuple[str, ...]
    """Normalised names of the distributions that install it."""
    ops: tuple[Op, ...]
    tried: bool
    """Whether it was run on a card; otherwise it follows the documented interface alone."""
