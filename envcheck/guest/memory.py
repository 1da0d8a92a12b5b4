"""The card's memory around a call: filled before, and counted after."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial

from envcheck.guest.ops.torches import torch

_POISON, _SMALL_POISON, _SMALL_BLOCKS = 1 << 27, 1 << 19, 32
"""Bytes of a large block and of small ones, which allocators keep apart."""
_CALLS = 4
"""In each of which a leak must show."""
_LEAST_SECONDS = 0.02


def poison(device: str) -> None:
    """Leave numbers that are none in the memory that the next outputs will be put into."""
    if device != "cuda":
        return
    make = partial(torch().full, fill_value=255, dtype=torch().uint8, device=device)
    blocks = [make((_POISON,)), *(make((_SMALL_POISON,)) for _ in range(_SMALL_BLOCKS))]
    blocks.clear()


def retained(call: Callable[[], object]) -> int:
    """Return the bytes of the card's memory that a call does not give back.

    What leaks does so every time; what is kept once is a library's own, or is given back late
    by another thread.
    """
    of_torch, beside = [], []
    for _ in range(_CALLS):
        before, started = _taken(), time.monotonic()
        call()
        synchronize("cuda")
        seconds = time.monotonic() - started
        if _taken()[0] > before[0]:
            gc.collect()
        kept, other = (now - then for now, then in zip(_taken(), before, strict=True))
        of_torch.append(kept)
        beside.append(other if other <= 0 or _still(seconds) else 0)
        if min(of_torch) <= 0 and not _same(beside):
            return 0
    return max(min(of_torch), beside[0] if _same(beside) else 0)


def _same(beside: list[int]) -> bool:
    """Say whether it grew past torch, by the same amount each time: that is a call's doing."""
    return beside[0] > 0 and len(set(beside)) == 1


def _still(seconds: float) -> bool:
    """Say whether nothing grows while nothing is called: other processes may use the card too."""
    before = _taken()[1]
    time.sleep(max(seconds, _LEAST_SECONDS))
    return _taken()[1] == before


def _taken() -> tuple[int, int]:
    """Return the bytes that torch's tensors take, and those that nothing of torch's takes."""
    cuda = torch().cuda
    free, total = cuda.mem_get_info()
    return cuda.memory_allocated(), total - free - cuda.memory_reserved()


def synchronize(device: str) -> None:
    """Wait for the card; raises what went wrong there."""
    if device == "cuda":
        torch().cuda.synchronize()
