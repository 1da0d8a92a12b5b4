"""The child's side of a trial: what a process does between its fork and its end."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

Work = Callable[[], object]
"""Returns plain JSON values; or replaces the process by another program."""

SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36  # of prctl(2)
LIBC = ctypes.CDLL(None)
_MAX_ERROR = 4000


def become_child(
    work: Work, parent: int, descriptors: tuple[int, int, int], memory: int | None
) -> NoReturn:
    """Do the work in the process that was just forked; leaves its answer in the file and ends.

    `descriptors` are those of the file for the answer, of stdout and of stderr.
    """
    answer, out, err = descriptors
    code = 1
    try:
        _settle(parent, out, err, memory)
        said, code = _answer(work)
        with open(answer, "wb", closefd=False) as handle:
            handle.write(said.encode())
        sys.stdout.flush()
        sys.stderr.flush()
        LIBC.fflush(None)
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
        code = 1
        traceback.print_exc()
    finally:
        os._exit(code)


def _answer(work: Work) -> tuple[str, int]:
    """Do the work; returns what to write as the answer, and the exit code."""
    try:
        return json.dumps({"value": work()}, allow_nan=False), 0
    except SystemExit as stop:
        return "", _exit_code(stop)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is this trial's outcome
        traceback.print_exc()
        return json.dumps({"raised": _describe(error)}), 0


def _settle(parent: int, out: int, err: int, memory: int | None) -> None:
    """Cut the child off from its parent's terminal, streams, signals and core dumps."""
    os.setsid()
    LIBC.prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    LIBC.prctl(SET_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for life
    sys.stdout, sys.stderr = (
        open(n, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for n in (1, 2)
    )
    faulthandler.enable(sys.stderr)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bound = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR]


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return (stop.code or 0) & 0xFF
    print(stop.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def signal_name(number: int) -> str:
    """Return `SIGSEGV` for its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
