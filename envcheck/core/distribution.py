"""One installed distribution: facts, free of I/O.

Apart from the model, because what looks just before a job starts needs this much of it alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One installed distribution, read from its dist-info directory."""

    name: str
    """Normalised: lower case, runs of `-_.` as one hyphen."""
    version: str
    record_digest: str | None
    """SHA-256 over the stable rows of RECORD (see `envcheck.guest.distributions`); None without."""
    direct_url: str | None = None
    """Where it came from when not an index, without credentials."""
    files: tuple[str, ...] = ()
    """Compiled files that it owns, relative to the site directory."""
    requires: tuple[str, ...] = ()
    """Requires-Dist lines about torch and triton, which the torch judgement needs."""
    problem: str | None = None
    """Why its RECORD cannot be parsed; None for one that can, or that is absent."""
