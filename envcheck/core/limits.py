"""What a product is and can do at most, as its maker states it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One row of `images/targets.toml`; a cell is None where no source was found."""

    card: str
    """`rtx-5090`: the name of the row."""
    memory_gb: int | None = None
    """Gigabytes, as the maker counts them."""
    bandwidth: float | None = None
    """Of the card's memory: 1e9 bytes a second, read and written together."""
    bf16: float | None = None
    """Dense products of bf16 with sums in fp32: 1e12 operations a second."""
    fp8: float | None = None
    """The same for fp8 with sums in fp32."""
    power: float | None = None
    """Watt."""
    pcie: int | None = None
    """Generation of the link to the host; None where there is none, or it is not known."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What somebody rented, resolved: a product, or an architecture without names and limits."""

    name: str
    """As the catalogue has it: `rtx-5090` or `blackwell`."""
    sm: str
    """`sm_120`."""
    reported: tuple[str, ...] = ()
    """The names that the driver gives the product; empty for an architecture."""
    limits: Limits | None = None
