"""Copies between host and card: how fast they are, and whether they bring what was sent."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from envcheck.core.tried import Bus, Link, Mismatch
from envcheck.guest.device import Device, whole_words
from envcheck.guest.driver import DriverFailed
from envcheck.guest.patterns import RANDOM, WORD, Pattern

_SIZE = 256 << 20
_TIMES = 5
_PATTERN = Pattern("random", RANDOM, seed=7)
_SAMPLES = 4096
"""Words that the host itself compares: the card compares all of them when they are back."""


def measure(device: Device, until: float) -> Link:
    """Send a pattern of the card's to the host and back, and compare it on the way.

    The card made the words and knows what they must be; the host compares some of them, and all
    that came back wrong, so that both directions are known to be right, or which one is not.
    """
    size = whole_words(min(_SIZE, device.memory()[0] // 4))
    card, words = device.allocate(size), size // WORD
    pageable = mmap.mmap(-1, size)
    ordinary = ctypes.addressof(ctypes.c_char.from_buffer(pageable))
    pinned, host = "", ordinary
    try:
        host = device.pinned(size)
    except DriverFailed as error:
        pinned = str(error)
    device.fill(card, words, 0, _PATTERN)
    device.wait()
    ctypes.memset(host, 0x5A, size)
    device.to_host(host, card, size)
    on_host = _wrong_on_host(host, range(0, words, max(words // _SAMPLES, 1)))
    device.set_bytes(card, 0xA5, size)
    device.to_card(card, host, size)
    report = device.new_report()
    device.verify(card, words, 0, _PATTERN, report)
    found = device.read_report(report)
    back = tuple(_with_side(host, mismatch) for mismatch in found.mismatches())
    link = Link(
        size=size, pinned=pinned, wrong=max(found.count, len(on_host)), first=back or on_host[:8]
    )
    link = _timed(device, link, card, host if not pinned else 0, ordinary, until)
    if not pinned:
        device.free_pinned(host)
    device.free(card)
    return link


def _wrong_on_host(host: int, indices: range) -> tuple[Mismatch, ...]:
    """Return those of some words in the host's memory that are not those of the pattern."""
    found = []
    for index in indices:
        word = ctypes.c_uint64.from_address(host + index * WORD).value
        if word != (expected := _PATTERN.word(index)):
            found.append(
                Mismatch(
                    offset=index * WORD,
                    expected=f"{expected:#018x}",
                    found=f"{word:#018x}",
                    side="to host",
                )
            )
    return tuple(found)


def _with_side(host: int, back: Mismatch) -> Mismatch:
    """Say on which way a word was lost that came back wrong."""
    index = back.offset // WORD
    wrong = _wrong_on_host(host, range(index, index + 1))
    return wrong[0] if wrong else replace(back, side="to card")


def _timed(device: Device, link: Link, card: int, pinned: int, ordinary: int, until: float) -> Link:
    """Measure each way and each kind of memory, the most important first."""
    size, bus = link.size, None
    if pinned:
        to_card = _best(device, lambda: device.to_card(card, pinned, size, later=True), until)
        to_host = _best(device, lambda: device.to_host(pinned, card, size, later=True), until)
        for _ in range(2):
            device.to_card(card, pinned, size, later=True)
        bus = read_bus(device.address())  # an idle link is slower: it is looked at under load
        device.wait()
        link = replace(link, to_card=_rate(size, to_card), to_host=_rate(size, to_host), bus=bus)
    if time.monotonic() < until:
        ctypes.memset(ordinary, 0x3C, size)  # pages that nobody touched are not there yet
        to_card = _by_clock(device, lambda: device.to_card(card, ordinary, size))
        to_host = _by_clock(device, lambda: device.to_host(ordinary, card, size))
        link = replace(
            link, pageable_to_card=_rate(size, to_card), pageable_to_host=_rate(size, to_host)
        )
    return link


def _best(device: Device, work: Callable[[], None], until: float) -> float:
    """Return the shortest of several times; the first wakes the link and is done in any case."""
    best = device.seconds(work)
    for _ in range(_TIMES):
        if time.monotonic() >= until:
            break
        best = min(best, device.seconds(work))
    return best


def _by_clock(device: Device, work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    device.wait()
    return max(time.perf_counter() - begun, 1e-9)


def _rate(size: int, seconds: float) -> float:
    return round(size / seconds / 1e9, 3)


def read_bus(address: str, devices: Path = Path("/sys/bus/pci/devices")) -> Bus | None:
    """Return how a card's link is trained now; None where the system does not show it."""
    folder = devices / address
    try:
        speeds = [
            (folder / f"{which}_link_speed").read_text(encoding="ascii").split()[0]
            for which in ("current", "max")
        ]
        widths = [
            int((folder / f"{which}_link_width").read_text(encoding="ascii"))
            for which in ("current", "max")
        ]
        return Bus(
            speed=float(speeds[0]),
            width=widths[0],
            most_speed=float(speeds[1]),
            most_width=widths[1],
        )
    except (OSError, ValueError, IndexError):  # `Unknown`, or no such file: not shown
        return None
