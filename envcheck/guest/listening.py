"""What runs beside the numbers: warnings that matter, and the kernels that a call starts."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from envcheck.guest import pipes, words

_TELLING = re.compile(
    r"fall(s|ing|en)? ?back|fell back|fallback|skipp|not a recognized|not compiled with"
    r"|no kernel image|not compatible|unsupported|will be slow",
    re.IGNORECASE,
)
_MAX_KERNELS = 40
# Some versions of the profiler tell calls of the API, and its own doings, as if of the card.
_NO_KERNEL = re.compile(r"(cuda|cu)[A-Z]\w*$|Activity Buffer Request|(Context|Event|Stream) ")
_MAX_WRITTEN, _MAX_LINES = 1 << 16, 30


def telling(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the different lines that speak of something else having been done."""
    return words.distinct(line for line in lines if _TELLING.search(line))


@contextlib.contextmanager
def to_warnings() -> Iterator[list[str]]:
    """Fill a list, at the end, with what was warned of or logged meanwhile."""
    found: list[str] = []
    log = _Log()
    logger = logging.getLogger("torch")
    logger.addHandler(log)
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            yield found
    finally:
        logger.removeHandler(log)
    lines = (line for warned in heard for line in str(warned.message).splitlines())
    found += telling((*lines, *log.lines))


@contextlib.contextmanager
def to_stderr(path: str) -> Iterator[list[str]]:
    """Fill a list, at the end, with what a library wrote to stderr meanwhile, if it matters.

    Meanwhile it goes to a file, which is there after a crash; at the end it is passed on.
    """
    found: list[str] = []
    sys.stderr.flush()
    real, aside = os.dup(2), os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(aside, 2)
    try:
        yield found
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)
        written = os.pread(aside, _MAX_WRITTEN, 0)
        os.close(aside)
        os.remove(path)
        with contextlib.suppress(OSError):
            os.write(real, written)
        os.close(real)
        found += telling(pipes.told(written.splitlines()))


def left_in(path: str) -> list[str]:
    """Return the last lines that a crash left in the file of `to_stderr`."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as handle:
        return pipes.told(handle.read(_MAX_WRITTEN).splitlines())[-_MAX_LINES:]
    return []


class _Log(logging.Handler):
    """Keeps the lines that a library logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        with contextlib.suppress(Exception):
            self.lines += record.getMessage().splitlines()


def to_kernels(call: Callable[[], object]) -> tuple[str, ...]:
    """Return the names of the kernels and copies that a call starts on the card."""
    cuda: Any = importlib.import_module("torch.cuda")
    device: Any = importlib.import_module("torch.autograd").DeviceType.CUDA
    cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _profile() as profile:
            call()
            cuda.synchronize()
        events = getattr(profile, "profiler", profile).function_events or ()
        names = [event.name for event in events if event.device_type == device]
    return kernels_among(names)


def _profile() -> Any:
    """Return a session of the profiler, for the card alone."""
    low: Any = importlib.import_module("torch.autograd.profiler")
    try:
        # Not torch.profiler's, which imports the compiler of torch, for seconds.
        return low.profile(use_cpu=False, use_device="cuda", use_kineto=True)
    except TypeError:  # an older torch, which has no use_device
        high: Any = importlib.import_module("torch.profiler")
        return high.profile(activities=[high.ProfilerActivity.CUDA])


def kernels_among(names: Iterable[str]) -> tuple[str, ...]:
    """Return the different names of what ran on the card."""
    ran = (name[:200] for name in names if not _NO_KERNEL.match(name))
    return tuple(dict.fromkeys(ran))[:_MAX_KERNELS]
