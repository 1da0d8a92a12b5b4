"""Names of distributions as they are compared, and of files as documents can hold them."""

from __future__ import annotations

import re


def normalise(name: str) -> str:
    """Normalise a distribution's name as the packaging specifications say."""
    return re.sub(r"[-_.]+", "-", name).lower()


def visible(text: str) -> str:
    """Return text that UTF-8 can hold: bytes of another encoding are escaped."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
