"""A test of a card's memory: patterns written to most of what is free, and compared with it."""

from __future__ import annotations

import time
from itertools import islice

from envcheck.core.tried import Held, Pass
from envcheck.guest.device import OUT_OF_MEMORY, Device, whole_words
from envcheck.guest.driver import DriverFailed
from envcheck.guest.patterns import WORD, Pattern, in_turn

_RESERVE = 1 << 30
"""Bytes at most that are left to whoever else is on the card, and to the driver."""
_SMALLEST = 1 << 20
"""A chunk that is not worth to be asked for."""
_ONCE = 6
"""Patterns after which each kind was there, as it is and turned over."""
_FULL = 2 + 64 * 4
"""Patterns after which the walking bits were on each of the 64 lines of each word."""

Chunk = tuple[int, int, int]
"""Address, number of words, and the index of the first."""


def run(device: Device, until: float, *, full: bool) -> Held:
    """Write each pattern to all of the memory before any of it is compared.

    So two addresses that are one cell show: the second write has taken the first one's place.
    """
    free, total = device.memory()
    # Where the host has no other memory, taking all of it would end its programs, this one too.
    spared = free // 2 if device.shares_memory else min(_RESERVE, free // 20)
    chunks = _allocate(device, free - spared)
    passes: list[Pass] = []
    left, last = "", 0.0
    if not chunks:
        left = "no memory of the card could be had"
    for pattern in islice(in_turn(), _FULL if full else _ONCE) if chunks else ():
        if passes and time.monotonic() + last > until:
            if len(passes) < _ONCE:
                left = f"no time was left after {len(passes)} of {_ONCE} patterns"
            break
        passes.append(_pass(device, chunks, pattern))
        last = passes[-1].seconds
    for address, _, _ in chunks:
        device.free(address)
    tested = sum(words for _, words, _ in chunks) * WORD
    return Held(total=total, free=free, tested=tested, passes=tuple(passes), left=left)


def _allocate(device: Device, size: int) -> list[Chunk]:
    """Take so much memory in chunks that are as large as the driver gives."""
    chunks: list[Chunk] = []
    taken, chunk = 0, whole_words(size)
    while chunk >= _SMALLEST:
        try:
            address = device.allocate(chunk)
        except DriverFailed as error:
            if error.code != OUT_OF_MEMORY:
                raise
            chunk = whole_words(chunk // 2)
            continue
        chunks.append((address, chunk // WORD, taken // WORD))
        taken += chunk
        chunk = whole_words(min(chunk, size - taken))
    return chunks


def _pass(device: Device, chunks: list[Chunk], pattern: Pattern) -> Pass:
    begun = time.monotonic()
    for address, words, start in chunks:
        device.fill(address, words, start, pattern)
    device.wait()
    report = device.new_report()
    for address, words, start in chunks:
        device.verify(address, words, start, pattern, report)
    found = device.read_report(report)
    return Pass(
        pattern=pattern.name,
        seed=pattern.seed,
        wrong=found.count,
        bits=f"{found.bits:#x}",
        first=found.mismatches(),
        seconds=round(time.monotonic() - begun, 3),
    )
