"""One function for each command of the command line; each returns the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

_MODULES = {
    "targets": "listing",
    "explain": "listing",
    "build": "build",
    "scan": "looking",
    "check": "looking",
    "preflight": "preflight",
    "judge": "looking",
    "keygen": "keys",
    "verify": "keys",
    "guard": "guard",
    "compare": "compare",
    "export": "export",
    "selftest": "selftest",
}


def command(name: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command; only its own module is imported."""
    module = import_module(f"envcheck.commands.{_MODULES[name]}")
    found: Callable[[argparse.Namespace], int] = getattr(module, name)
    return found
