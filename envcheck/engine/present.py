"""What the environment of an interpreter is now, looked at while something else is done."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import envcheck
from envcheck.core import codec
from envcheck.core.present import Present, PresentRequest
from envcheck.engine import child
from envcheck.errors import EnvcheckError, FileUnavailable, UsageError

_DEADLINE, _DEEP_DEADLINE = 300, 3600
_HOME = "PYTHONHOME"
"""Takes the place of the interpreter's own folders in a job, and not in a guest (`-E`)."""
_ENTRY = Path(envcheck.__file__).parent / "guest" / "present.py"


class Looking:
    """A guest that has begun to look; whoever made it has to `end` it."""

    def __init__(self, python: str) -> None:
        """Start it; raises FileUnavailable where `python` cannot be run, UsageError for its home."""
        if os.environ.get(_HOME):
            message = f"{_HOME} is set: a job would not use the packages of {python}"
            raise UsageError(message, remedy=f"unset {_HOME}")
        self._python = python
        # Files in memory: a gate must work where no disk can be written to, and what is said
        # there ends with the guest, unlike a pipe.
        self._answer, self._said = (os.memfd_create("envcheck") for _ in range(2))
        try:
            self._process = subprocess.Popen(
                [python, "-E", "-S", "-B", str(_ENTRY), str(self._answer)],
                # A pipe of its own: stdin belongs to the job.
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(self._answer,),
                start_new_session=True,
            )
        except OSError as error:
            self._close()
            message = f"{python}: cannot be run: {error.strerror or error}"
            raise FileUnavailable(message, remedy="--python PATH of an interpreter") from None

    def answer(self, request: PresentRequest) -> Present:
        """Tell it what to look at and return what it found; raises EnvcheckError without that."""
        asked = codec.to_json(request)
        seconds = _DEEP_DEADLINE if request.deep else _DEADLINE
        try:
            self._process.communicate(f"{json.dumps(asked)}\n".encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            message = f"{self._python}: looking at its environment took more than {seconds} s"
            raise EnvcheckError(
                message, remedy="look for a hanging file system or driver"
            ) from None
        document = _content(self._answer)
        if self._process.returncode or not document:
            said = _content(self._said).decode("utf-8", "replace").strip()
            last = " ".join((said or "it said nothing").splitlines()[-2:])
            message = f"{self._python}: its environment could not be looked at: {last}"
            raise EnvcheckError(message, remedy="--python PATH of Python 3.10 or newer")
        return codec.loads(Present, document, name=f"environment of {self._python}")

    def end(self) -> None:
        """End it, whatever it is doing."""
        child.kill(self._process)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._close()

    def _close(self) -> None:
        os.close(self._answer)
        os.close(self._said)


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
