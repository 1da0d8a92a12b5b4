"""How a name looks that was replaced: nobody is to compare it with a real one."""

from __future__ import annotations

PREFIX = "redacted-"


def is_redacted(name: str) -> bool:
    """Say whether this stands for a name that is not told, such as `GPU-redacted-0123456789ab`."""
    return PREFIX in name
