"""What the checks claim, how they look and what to do, for a person."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import IO

from envcheck.checks import Check
from envcheck.core.failure_classes import NAMES

_LABEL = 10


def render(check: Check, stream: IO[str]) -> None:
    """Write all that is known of one check."""
    stream.write(f"{check.id}\n\n")
    found = "; ".join(f"{name} {NAMES[name]}" for name in check.classes)
    for label, text in (
        ("claims", check.claim),
        ("looks", check.how),
        ("finds", f"Failure classes: {found or 'none of those of public reports'}."),
        ("do", check.remedy),
    ):
        stream.write(_entry(label, _LABEL, text, stream))


def render_list(checks: Sequence[Check], stream: IO[str]) -> None:
    """Write every check with its claim."""
    widest = max(len(check.id) for check in checks)
    for check in checks:
        stream.write(_entry(check.id, widest + 2, check.claim, stream))


def _entry(label: str, indent: int, text: str, stream: IO[str]) -> str:
    """Put a text beside its label; it wraps on a terminal and nowhere else."""
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    lines = textwrap.wrap(text, max(20, width - indent)) if width else [text]
    return f"{label:{indent}}" + f"\n{'':{indent}}".join(lines) + "\n"
