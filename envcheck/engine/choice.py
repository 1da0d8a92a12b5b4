"""Which engine builds: the one that is asked for, or Docker if it answers and else a venv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from envcheck.engine import docker
from envcheck.engine.protocol import Engine
from envcheck.errors import FileUnavailable, UsageError

KINDS = ("auto", "docker", "venv")


def choose(
    kind: str,
    *,
    builder: str | None,
    folder: Path,
    python: str | None,
    note: Callable[[str], None],
) -> Engine:
    """Return an engine; `note` is told when it is not the first choice.

    Raises FileUnavailable when the one that is asked for cannot be had, UsageError for options
    that contradict each other. A venv is built below `folder` with `python`.
    """
    from envcheck.engine.venv import Venv

    if builder is not None and kind == "venv":
        message = "--builder names a builder of Docker, and --engine venv uses none"
        raise UsageError(message, remedy="leave one of them out")
    if kind == "venv":
        return Venv(folder, python=python)
    try:
        return docker.connect(builder=builder)
    except FileUnavailable as error:
        if kind == "docker" or builder is not None:
            raise
        note(f"{error.message}: building a venv in {folder} instead (--engine docker insists)")
        return Venv(folder, python=python)
