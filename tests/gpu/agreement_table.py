"""The comparisons of all tests of a session, for one table at its end."""

from __future__ import annotations

import io
from dataclasses import replace

from envcheck.core import tally
from envcheck.core.tally import Selftest
from envcheck.output import selftest as text

_FOUND: list[Selftest] = []


def keep(found: Selftest, *, folder: str = "") -> None:
    """Keep a comparison; groups of a measured folder get its name."""
    named = (replace(c, group=f"{folder}: {c.group}" if folder else c.group) for c in found.objects)
    _FOUND.append(replace(found, objects=tuple(named)))


def table() -> str:
    """Return the table of all that was kept, in Markdown; empty without any."""
    if not _FOUND:
        return ""
    objects = tuple(each for found in _FOUND for each in found.objects)
    drawn = io.StringIO()
    text.render(replace(_FOUND[0], objects=objects, groups=tally.count(objects)), drawn)
    return drawn.getvalue()
