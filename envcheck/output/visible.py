"""Text of strangers (names in archives, packages) made fit for a terminal."""

from __future__ import annotations

import re

# C0 and C1 controls move the cursor, set the title or worse; the others reorder text.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return the text on one line, with control characters written as `\x1b`."""
    return _CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode("ascii"), text)
