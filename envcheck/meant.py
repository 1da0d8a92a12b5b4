"""Which known name was meant by one that is not known, for every message that says so."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that this one begins or resembles, None where there is none."""
    names, small = list(known), name.lower()
    begun = [each for each in names if small and each.lower().startswith(small)]
    near = begun or difflib.get_close_matches(small, [each.lower() for each in names], 1)
    return next((each for each in names if near and each.lower() == near[0].lower()), None)


def question(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` to follow a message, empty where nothing is near."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""
