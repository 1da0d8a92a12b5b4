"""The environment of an interpreter on this machine: a venv, a rental, a laptop.

The interpreter is started without `site`, so nothing of the environment is imported or run,
neither `.pth` lines nor `sitecustomize`; the guest works out the `sys.path` of a job itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from envcheck import bundle
from envcheck.core import codec
from envcheck.core.request import Collected, Request
from envcheck.engine import child, named_python
from envcheck.engine.protocol import Answer
from envcheck.errors import EnvcheckError, FileUnavailable

_DEADLINE = 300
_LONG_DEADLINE = 3600
"""Where kernels are compiled and run, each of which has its own."""
_PROBE_DEADLINE = 30
_TAIL = 4000
_REMEDY = "--python PATH of an interpreter or a venv"


def collect(python: str, request: Request | None = None) -> Collected:
    """Run the guest with `python`; raises FileUnavailable when that is no usable interpreter."""
    asked = request or Request()
    seconds = _DEADLINE if asked.execute is None else _LONG_DEADLINE + asked.execute.budget
    answer = run_guest(python, asked, seconds=seconds)
    return codec.loads(Collected, answer.document, name=f"inventory of {python}")


def run_guest(
    python: str, request: Request, *, seconds: float, variables: Mapping[str, str] | None = None
) -> Answer:
    """Run the guest with `python`, for at most `seconds`.

    `variables` are its whole environment; None for that of this process. Raises
    FileUnavailable for no usable interpreter, EnvcheckError when it left no answer.
    """
    require_version(python)
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        control = Path(folder)
        entry = bundle.stage(control / "bundle")
        (control / "request.json").write_text(codec.dumps(request), encoding="utf-8")
        command = [python, "-E", "-S", "-B", str(entry), folder]
        started = time.monotonic()
        try:
            out, err = _run(command, control, seconds, variables)
        except subprocess.TimeoutExpired:
            message = f"{python}: reading its environment took more than {seconds:.0f} s"
            raise EnvcheckError(message, remedy="look for a hanging file system") from None
        said = err or out
        answer = control / "inventory.json"
        if not answer.exists():
            last = " ".join((said or "it said nothing").splitlines()[-3:])
            message = f"{python}: the guest wrote no inventory: {last}"
            raise EnvcheckError(message, remedy=f"{python} --version (3.10 or newer is needed)")
        return Answer(
            document=answer.read_bytes(),
            output=said,
            python=python,
            seconds=time.monotonic() - started,
        )


def _run(
    command: list[str],
    folder: Path,
    deadline: float,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """Run one command, return the ends of stdout and stderr; raises TimeoutExpired and OSError.

    What it says goes to files, which hold any amount of it and, unlike a pipe, end with the
    command and not with a daemon that it left behind.
    """
    with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as err:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=None if variables is None else dict(variables),
            start_new_session=True,
        )
        try:
            started.wait(deadline)
        finally:
            # Politely first: the guest then ends what its trials started in sessions of their own
            # (compilers). Then the whole session, for a wrapper script leaves the interpreter.
            child.end(started)
        return _tail(out), _tail(err)


def _tail(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _TAIL))
    return stream.read(_TAIL).decode("utf-8", "replace").strip()


def ask(python: str, code: str) -> str:
    """Return what `python` prints for a line of code; raises FileUnavailable when it cannot."""
    if os.path.isdir(python):
        message = f"{python}: a folder without bin/python"
        raise FileUnavailable(message, remedy=_REMEDY)
    try:
        with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
            said, _ = _run([python, "-EsSc", code], Path(folder), _PROBE_DEADLINE)
    except (OSError, ValueError) as error:
        message = f"{python}: cannot be run: {getattr(error, 'strerror', None) or error}"
        raise FileUnavailable(message, remedy=_REMEDY) from None
    except subprocess.TimeoutExpired:
        message = f"{python}: does not answer as a Python interpreter"
        raise FileUnavailable(message, remedy=_REMEDY) from None
    return said


def require_version(python: str) -> None:
    """Refuse what is no Python of at least 3.10; raises FileUnavailable."""
    if python == sys.executable:
        return
    said = ask(python, "import sys; print('%d.%d' % sys.version_info[:2])")
    major, _, minor = said.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        message = f"{python}: is not a Python interpreter"
        raise FileUnavailable(message, remedy=_REMEDY)
    if (int(major), int(minor)) < (3, 10):
        message = f"{python}: Python {said} is too old"
        raise FileUnavailable(message, remedy="use an environment with Python 3.10 or newer")


def base_interpreter(python: str | None) -> tuple[str, str]:
    """Return the interpreter that venvs are made with, and its `sys.version` on one line.

    None is the one that envcheck runs with; of a venv's it is the one below. Raises
    FileUnavailable for one that is not usable.
    """
    python = sys.executable if python is None else named_python.resolve(python)
    require_version(python)
    # Up to 3.10 a venv's own interpreter took itself for its base.
    found = (
        "sys._base_executable if sys.version_info > (3, 11) else os.path.realpath(sys.executable)"
    )
    said = ask(python, f"import os, sys; print({found}); print(' '.join(sys.version.split()))")
    executable, _, version = said.partition("\n")
    return executable, version
