"""Run the command as its users do: as a process of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMAND = (str(Path(sys.executable).with_name("envcheck")),)
_OURS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "PYTHONPATH")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what would change the output."""
    kept = {k: v for k, v in os.environ.items() if k not in _OURS and not k.startswith("ENVCHECK_")}
    return {**kept, "TERM": "xterm-256color", **(extra or {})}


def envcheck(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run one command without a terminal; what it prints must be UTF-8 and no traceback."""
    done = subprocess.run(
        [*COMMAND, *map(os.fspath, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        env=environment(env),
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def report(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    """Run one command with `--format json` and return its document."""
    done = envcheck(*arguments, "--format", "json", **options)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def on_terminal(
    *arguments: str | Path, columns: int = 80, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run one command on a terminal of its own; return the exit code and all it wrote there."""
    parent, child = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": "40"}
    with subprocess.Popen(
        [*COMMAND, *map(os.fspath, arguments)],
        stdin=child,
        stdout=child,
        stderr=child,
        env=environment({**size, **(env or {})}),
        close_fds=True,
    ) as process:
        os.close(child)
        written = bytearray()
        while True:
            select.select([parent], [], [], 120)
            try:
                piece = os.read(parent, 65536)
            except OSError:  # Linux says EIO when the last writer is gone
                break
            if not piece:
                break
            written += piece
        process.wait(timeout=60)
    os.close(parent)
    return process.returncode, written.decode("utf-8").replace("\r\n", "\n")
