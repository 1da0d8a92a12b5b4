"""A job that runs as if nobody stood beside it, and work that goes on beside it.

The job is in the same process group, with the same terminal and standard streams. What a
terminal sends (Ctrl-C) reaches the whole group, so it is passed on only where a process sent it
to us alone.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Protocol

from envcheck.errors import FileUnavailable

_PASSED_ON = frozenset(
    (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
)
_ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
_AWAITED = _PASSED_ON | {signal.SIGCHLD}
# What the kernel sends has a positive code (SI_KERNEL), what a process sends has none: signal(7).
_BY_A_PROCESS = 0
_LOOK = 1.0
_ONE = 2.0
"""Seconds within which several signals are one: `timeout` sends its own twice, to us and to all."""


class Beside(Protocol):
    """What goes on beside a job."""

    def start(self) -> None:
        """Begin; the job runs."""

    def hurry(self) -> None:
        """Do what matters now: somebody wants the job to end, or tells it something."""

    def finish(self) -> None:
        """Do the rest: the job has ended."""

    def cancel(self) -> None:
        """Leave the rest: somebody asks again, and does not want to wait for it."""

    def done(self, seconds: float) -> bool:
        """Wait for the rest that long; say whether it is done."""


def run(program: str, words: Sequence[str], beside: Beside) -> int:
    """Run a job with work beside it; return its exit code, 128 and more for a signal.

    Raises FileUnavailable if it cannot be started; then nothing was begun beside it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    # Ignored, its end would never be told.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        job = subprocess.Popen(
            list(words),
            executable=program,
            # No thread has been started yet that could hold a lock meanwhile.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509
        )
    except OSError as error:
        message = f"{program}: cannot be started: {error.strerror or error}"
        raise FileUnavailable(message, remedy="a script begins with #! and a program") from None
    beside.start()
    asked = _pass_on(job, beside)
    beside.finish()
    while not beside.done(_LOOK / 5):
        if signal.sigtimedwait(_ENDING, 0) is not None:
            if asked is not None and time.monotonic() - asked > _ONE:
                beside.cancel()
            asked = time.monotonic()
    return 128 - job.returncode if job.returncode < 0 else job.returncode


def _pass_on(job: subprocess.Popen[bytes], beside: Beside) -> float | None:
    """Pass signals on until the job has ended; return when it was last asked to end."""
    asked = None
    while job.poll() is None:
        told = signal.sigtimedwait(_AWAITED, _LOOK)
        if told is not None and told.si_signo in _PASSED_ON:
            if told.si_code <= _BY_A_PROCESS:
                job.send_signal(told.si_signo)
            if told.si_signo in _ENDING:
                asked = time.monotonic()
            beside.hurry()
    return asked
