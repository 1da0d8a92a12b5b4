"""The interpreter that a user names. By itself, as a gate must not import what the rest needs."""

from __future__ import annotations

import os


def resolve(python: str) -> str:
    """Return the interpreter to run for a path, a command name or an environment's folder."""
    inside = os.path.join(python, "bin", "python")
    return inside if os.path.isdir(python) and os.path.exists(inside) else python
