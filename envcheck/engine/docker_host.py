"""Where the engine is that the docker command would use, and whether anybody answers there."""

from __future__ import annotations

import os
import socket


def address() -> str:
    """Return DOCKER_HOST, or the address of the docker command's current context."""
    return os.environ.get("DOCKER_HOST") or _context_host()


def knock(host: str) -> None:
    """Raise OSError when nothing listens at a socket: the library would leave its own open."""
    path = host.removeprefix("http+").removeprefix("unix://")
    if path != host:
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.connect(path)


def _context_host() -> str:
    """Return the address of the docker command's current context."""
    from docker.context import ContextAPI

    try:
        context = ContextAPI.get_current_context()
    except Exception:  # noqa: BLE001 - whatever a broken configuration file raises
        context = None
    return (
        str(context.Host) if context is not None and context.Host else "unix:///var/run/docker.sock"
    )


def innermost(error: BaseException) -> str:
    """Return the cause that a person understands, from under the layers of the HTTP library."""
    while isinstance(inner := (error.__cause__ or error.__context__), BaseException):
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
