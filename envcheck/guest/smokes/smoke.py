"""What a smoke test is: a few operations of one extension, compared as every operation is."""

from __future__ import annotations

from dataclasses import dataclass

from envcheck.guest.ops.op import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """One extension; each of its operations has its `module` as family."""

    module: str
    """Import name."""
    distributions: tuple[str, ...]
    """Normalised names of the distributions that it covers."""
    ops: tuple[Op, ...]
    on_card: tuple[str, ...] = ()
    """Distributions of which one must be there: without them it is a build for the CPU, and meant
    to compute there. Empty where there is no such build."""
    tried: bool
    """Whether it was run on a card."""
