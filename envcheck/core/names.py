"""Names of distributions, as they are compared."""

from __future__ import annotations

import re


def normalise(name: str) -> str:
    """Normalise a distribution's name as the packaging specifications say."""
    return re.sub(r"[-_.]+", "-", name).lower()
