"""The environment of an interpreter on this machine: a venv, a rental, a laptop.

The interpreter is started without `site`, so nothing of the environment is imported or run,
neither `.pth` lines nor `sitecustomize`; the guest works out the `sys.path` of a job itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from envcheck import bundle
from envcheck.core import codec
from envcheck.core.request import Collected, Request
from envcheck.errors import EnvcheckError, FileUnavailable

_DEADLINE = 300
_PROBE_DEADLINE = 30
_TAIL = 400
_REMEDY = "--python PATH of an interpreter or a venv"


def collect(python: str) -> Collected:
    """Run the guest with `python`; raises FileUnavailable when that is no usable interpreter."""
    _require_version(python)
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        control = Path(folder)
        entry = bundle.stage(control / "bundle")
        (control / "request.json").write_text(codec.dumps(Request()), encoding="utf-8")
        try:
            out, err = _run([python, "-E", "-S", "-B", str(entry), folder], control, _DEADLINE)
        except subprocess.TimeoutExpired:
            message = f"{python}: reading its environment took more than {_DEADLINE} s"
            raise EnvcheckError(message, remedy="look for a hanging file system") from None
        answer = control / "inventory.json"
        if not answer.exists():
            said = " ".join((err or out or "it said nothing").splitlines()[-3:])
            message = f"{python}: the guest wrote no inventory: {said}"
            raise EnvcheckError(message, remedy=f"{python} --version (3.10 or newer is needed)")
        return codec.loads(Collected, answer.read_bytes(), name=f"inventory of {python}")


def _run(command: list[str], folder: Path, deadline: int) -> tuple[str, str]:
    """Run one command, return the ends of stdout and stderr; raises TimeoutExpired and OSError.

    What it says goes to files, which hold any amount of it and, unlike a pipe, end with the
    command and not with a daemon that it left behind.
    """
    with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as err:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            started.wait(deadline)
        finally:
            if started.poll() is None:
                # The whole session, for a wrapper script leaves the interpreter running.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
                started.wait()
        return _tail(out), _tail(err)


def _tail(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _TAIL))
    return stream.read(_TAIL).decode("utf-8", "replace").strip()


def _require_version(python: str) -> None:
    """Refuse what is no Python of at least 3.10; raises FileUnavailable."""
    if python == sys.executable:
        return
    if os.path.isdir(python):
        message = f"{python}: a folder without bin/python"
        raise FileUnavailable(message, remedy=_REMEDY)
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
            said, _ = _run([python, "-EsSc", probe], Path(folder), _PROBE_DEADLINE)
    except (OSError, ValueError) as error:
        message = f"{python}: cannot be run: {getattr(error, 'strerror', None) or error}"
        raise FileUnavailable(message, remedy=_REMEDY) from None
    except subprocess.TimeoutExpired:
        message = f"{python}: does not answer as a Python interpreter"
        raise FileUnavailable(message, remedy=_REMEDY) from None
    major, _, minor = said.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        message = f"{python}: is not a Python interpreter"
        raise FileUnavailable(message, remedy=_REMEDY)
    if (int(major), int(minor)) < (3, 10):
        message = f"{python}: Python {said} is too old"
        raise FileUnavailable(message, remedy="use an environment with Python 3.10 or newer")


def resolve(python: str) -> str:
    """Return the interpreter to run for a path, a command name or an environment's folder."""
    inside = os.path.join(python, "bin", "python")
    return inside if os.path.isdir(python) and os.path.exists(inside) else python
