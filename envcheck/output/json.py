"""Reports as JSON: one report alone, several under one schema."""

from __future__ import annotations

from collections.abc import Sequence

from envcheck.core import codec
from envcheck.core.model import REPORTS_SCHEMA, Report


def render(reports: Sequence[Report]) -> str:
    """Return the document for one report, or for several about one inventory."""
    if len(reports) == 1:
        return codec.dumps(reports[0])
    return codec.dumps({"schema": REPORTS_SCHEMA, "reports": list(reports)})
