"""What runs beside the numbers: warnings that matter, and the kernels that a call starts."""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from envcheck.guest import words

_TELLING = re.compile(
    r"fall(s|ing|en)? ?back|fell back|fallback|skipp|not a recognized|not compiled with"
    r"|no kernel image|not compatible|unsupported|will be slow",
    re.IGNORECASE,
)
_MAX_KERNELS = 40


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
    """Return the names of the kernels that a call starts on the card."""
    profiler: Any = importlib.import_module("torch.profiler")
    cuda: Any = importlib.import_module("torch.cuda")
    device: Any = importlib.import_module("torch.autograd").DeviceType.CUDA
    cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
            call()
            cuda.synchronize()
        names = [event.name for event in profile.events() if event.device_type == device]
    return tuple(dict.fromkeys(name[:200] for name in names))[:_MAX_KERNELS]
