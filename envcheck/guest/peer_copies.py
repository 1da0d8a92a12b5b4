"""Copies between two cards, compared in full on the host: the child's side of `exchange`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace

from envcheck.core.exchanged import Passage, WrongCopy
from envcheck.guest.device import Device, whole_words
from envcheck.guest.driver import Driver, DriverFailed
from envcheck.guest.journal import Journal
from envcheck.guest.patterns import RANDOM, WORD, Pattern

_SIZE = 64 << 20
_ODD = 13
"""Bytes that the second copy begins later than the first, and fewer than it has."""
_POISON = 0xC7
_TIMES = 3


def between(pair: tuple[int, int], library: str, journal: Journal) -> None:
    """Copy both ways by way of the host, then directly where the driver claims that it can."""
    try:
        driver = Driver(library)
        one, other = (Device(driver, index) for index in pair)
        ways = ((pair, one, other), (pair[::-1], other, one))
        direct = []
        for way, source, target in ways:
            if source.may_reach(target):
                journal.write("claimed", way)
                direct.append((way, source, target))
        for way, source, target in ways:
            _pass(source, target, Passage(source=way[0], target=way[1], direct=False), journal)
        for way, source, target in direct:
            passage = Passage(source=way[0], target=way[1], direct=True)
            journal.write("begun", passage)
            try:
                source.reach(target)
            except DriverFailed as error:
                journal.write("done", replace(passage, error=str(error)))
                continue
            _pass(source, target, passage, journal)
    except (DriverFailed, OSError) as error:
        journal.write("failed", str(error))


def _pass(source: Device, target: Device, passage: Passage, journal: Journal) -> None:
    """Copy one way, as a whole and from an odd place; writes down what came of it.

    With peer access a kernel of the source's writes to the target's memory as well: that is how
    NCCL sends, where the driver's copies take an engine of their own.
    """
    journal.write("begun", passage)
    pattern = Pattern("random", RANDOM, seed=1 + passage.source * 2 + passage.direct)
    try:
        size = whole_words(min(_SIZE, *(_free(device) // 4 for device in (source, target))))
        source.use()
        sent = source.allocate(size)
        source.fill(sent, size // WORD, 0, pattern)
        truth = _read(source, sent, size)
        target.use()
        got = target.allocate(size)
        wrong, copied = [], 0
        for by, begin, count in _copies(size, direct=passage.direct):
            target.use()
            target.set_bytes(got, _POISON, size)
            target.wait()
            source.use()
            if by == "kernel":
                source.copy_by_kernel(got + begin, sent + begin, count)
            else:
                source.copy_to(target, got + begin, sent + begin, count)
            source.wait()
            target.use()
            target.wait()
            found = _compare(truth, _read(target, got, size), begin, count)
            wrong += [replace(found, by=by)] if found else []
            copied += count
        source.use()
        work = lambda: source.copy_to(target, got, sent, size)  # noqa: E731
        best = min(source.seconds(work) for _ in range(_TIMES))
        source.free(sent)
        target.use()
        target.free(got)
    except DriverFailed as error:
        journal.write("done", replace(passage, error=str(error)))
        raise
    rate = round(size / best / 1e9, 3)
    journal.write("done", replace(passage, copied=copied, wrong=tuple(wrong), rate=rate))


def _copies(size: int, *, direct: bool) -> Iterator[tuple[str, int, int]]:
    """Yield by what each copy is done, where it begins, and its size."""
    yield "driver", 0, size
    yield "driver", _ODD, size - 2 * _ODD
    if direct:
        yield "kernel", 0, size


def _free(device: Device) -> int:
    device.use()
    return device.memory()[0]


def _read(device: Device, address: int, size: int) -> bytes:
    device.wait()
    host = ctypes.create_string_buffer(size)
    device.to_host(ctypes.addressof(host), address, size)
    return host.raw


def _compare(truth: bytes, found: bytes, begin: int, count: int) -> WrongCopy | None:
    """Compare what arrived with what was sent, and what stands beside it with the poison."""
    end = begin + count
    expected = truth[begin:end]
    got = found[begin:end]
    if got != expected:
        offset = _first_difference(got, expected)
        rest = got[offset : offset + 4096]
        looks = "other"
        if not any(rest):
            looks = "zeros"
        elif rest == bytes([_POISON]) * len(rest):
            looks = "untouched"
        return WrongCopy(size=count, offset=offset, looks=looks)
    beside = found[:begin] + found[end:]
    if beside != bytes([_POISON]) * len(beside):
        return WrongCopy(size=count, offset=count, looks="beyond")
    return None


def _first_difference(one: bytes, other: bytes) -> int:
    """Return the first place at which two unequal texts of one length differ."""
    low, high = 0, len(one)
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] != other[low:middle]:
            high = middle
        else:
            low = middle
    return low
