"""Child processes: what they say goes to us, and with their end everything they started ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from envcheck.errors import EnvcheckError, FileUnavailable

_GRACE = 10


def stream(
    command: list[str],
    variables: Mapping[str, str],
    read: Callable[[str], None],
    *,
    cwd: Path | None = None,
) -> int:
    """Run a command and hand over each line; whatever happens, it is not left running.

    Returns the exit code, negative for a signal; raises OSError where it cannot be started.
    """
    # A session of its own: Ctrl-C in the terminal reaches envcheck alone, which then ends
    # the child in order, so that an engine behind it hears of it and stops what it runs.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(variables),
        cwd=cwd,
        start_new_session=True,
        # What is built is to have the same modes whatever the user's mask.
        umask=0o022,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                read(line.decode("utf-8", "replace").rstrip("\r\n"))
            return process.wait()
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, politely first, and then whatever it leaves of it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is None:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(timeout=_GRACE)
    kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, and whatever is left of it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def open_log(path: Path) -> Iterator[IO[str]]:
    """Open a log for writing, line by line; raises EnvcheckError where that fails."""
    try:
        with path.open("w", encoding="utf-8", buffering=1) as handle:
            yield handle
    except OSError as error:
        message = f"{path}: the log cannot be written: {error.strerror}"
        raise EnvcheckError(message, remedy="name a folder with space to write to") from None


def require_readable(path: Path) -> None:
    """Raise FileUnavailable unless `path` is a file that can be read."""
    if not os.access(path, os.R_OK) or not path.is_file():
        message = f"{path}: cannot be read"
        raise FileUnavailable(message, remedy="name a file that is there")
