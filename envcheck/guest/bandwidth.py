"""How fast a card reads and writes its own memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

from envcheck.core.tried import Copied
from envcheck.guest.device import Device, whole_words

_SIZE = 2 << 30
"""Bytes: sixteen times the largest L2 that is known (126 MB, B200)."""
_TIMES = 7


def measure(device: Device, until: float) -> Copied:
    """Copy inside of the memory in both ways that there are.

    The driver's copy is not the better one everywhere: on eight healthy H100 it reached 75 % of
    what the memory can do (NVIDIA/nccl#1264), where kernels reach 90.
    """
    size = whole_words(min(_SIZE, device.memory()[0] // 4))
    source, to = device.allocate(size), device.allocate(size)
    device.set_bytes(source, 0x3C, size)
    rates = []
    for copy in (device.copy_by_kernel, device.copy_by_driver):
        taken = _median(device, partial(copy, to, source, size), until)
        rates.append(round(2 * size / taken / 1e9, 3))
    device.free(source)
    device.free(to)
    return Copied(size=size, by_kernel=rates[0], by_driver=rates[1])


def _median(device: Device, work: Callable[[], None], until: float) -> float:
    device.seconds(work)
    times: list[float] = []
    while len(times) < _TIMES and (not times or time.monotonic() < until):
        times.append(device.seconds(work))
    return statistics.median(times)
