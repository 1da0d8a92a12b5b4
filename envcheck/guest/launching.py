"""How long it takes to launch a kernel, and to hear that it is done."""

from __future__ import annotations

import statistics
import time

from envcheck.core.tried import Launches
from envcheck.guest.device import Device

_WARM, _ANSWERED, _ENQUEUED = 50, 300, 500
"""Launches; the last number is below what a card's queue holds (1024), so that none has to wait."""


def measure(device: Device, until: float) -> Launches:
    """Launch an empty kernel until the time is over, or often enough.

    What Python and ctypes take for a call is a part of it, two or three microseconds.
    """
    for _ in range(_WARM):
        device.nothing()
    device.wait()
    times: list[float] = []
    while len(times) < _ANSWERED and (not times or time.monotonic() < until):
        begun = time.perf_counter()
        device.nothing()
        device.wait()
        times.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    for _ in range(_ENQUEUED):
        device.nothing()
    enqueued = (time.perf_counter() - begun) / _ENQUEUED
    device.wait()
    return Launches(
        answered=round(statistics.median(times) * 1e6, 2),
        enqueued=round(enqueued * 1e6, 2),
        count=len(times),
    )
