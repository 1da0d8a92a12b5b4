"""Envcheck's kernels on a real card do what is said of them; `-rP` shows what was measured."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest
from inventories import scanned

from envcheck import native
from envcheck.checks import CHECKS, Question
from envcheck.core import codec
from envcheck.core.driver_facts import DriverCard
from envcheck.core.machine import Asked, Machine
from envcheck.core.sm import Sm
from envcheck.guest import cards, exchange, trial, trying
from envcheck.guest.device import Device
from envcheck.guest.driver import LIBRARY, Driver
from envcheck.guest.patterns import WORD, Pattern, in_turn

SIZE = 5 << 30
"""Bytes: more than 32 bits can count."""
IDS = (
    "launches-are-quick",
    "host-link-keeps-data",
    "host-link-is-fast",
    "device-memory-is-fast",
    "device-memory-holds-what-is-written",
    "peer-copies-arrive",
)


def poked(size: int, library: str = LIBRARY) -> dict[str, list[object]]:
    """Fill memory with each pattern, read some words, change one, and compare; in a child."""
    device = Device(Driver(library), 0)
    address, words = device.allocate(size), size // WORD
    found: dict[str, list[object]] = {}
    for pattern in islice(in_turn(), 10):
        start = 1 << 40
        device.fill(address, words, start, pattern)
        device.wait()
        places = (0, 1, 63, 64, words // 2 + 5, words - 1)
        read = [_word(device, address, place) for place in places]
        expected = [pattern.word(start + place) for place in places]
        sound = _verify(device, address, words, start, pattern)
        other = ctypes.c_uint64(read[-1] ^ (1 << 33))
        device.to_card(address + (words - 1) * WORD, ctypes.addressof(other), WORD)
        changed = _verify(device, address, words, start, pattern)
        found[f"{pattern.name} {pattern.seed}"] = [read == expected, sound, changed]
    return found


def _word(device: Device, address: int, place: int) -> int:
    word = ctypes.c_uint64()
    device.to_host(ctypes.addressof(word), address + place * WORD, WORD)
    return word.value


def _verify(device: Device, address: int, words: int, start: int, pattern: Pattern) -> list[int]:
    report = device.new_report()
    device.verify(address, words, start, pattern, report)
    told = device.read_report(report)
    return [told.count, told.bits, *(m.offset - start * WORD for m in told.mismatches())]


def test_words_are_those_of_python_and_a_changed_one_is_found(card: DriverCard) -> None:
    if card.total_memory < 2 * SIZE:
        pytest.skip(f"{card.name} has too little memory")
    ended = trial.run(partial(poked, SIZE), deadline=120)
    assert ended.outcome.ok, ended.outcome
    assert isinstance(ended.value, dict)
    assert len(ended.value) == 10
    for name, found in ended.value.items():
        assert found == [True, [0, 0], [1, 1 << 33, SIZE - WORD]], name


def test_a_real_card_is_tried_in_full(card: DriverCard) -> None:
    told = cards.look()
    tried = trying.try_cards(told, 60.0)
    done = exchange.exchange(told, 60.0)
    for one in tried:
        print(codec.dumps(one))  # noqa: T201
        assert (one.stopped, dict(one.left)) == ((), {})
        assert one.held is not None
        assert one.held.left == ""
    print(codec.dumps(done) if done is not None else "one card")  # noqa: T201
    machine = Machine(asked=Asked(), cards=told, tried=tried, exchanged=done)
    target = native.target()
    question = Question(
        target=target,
        sm=Sm.parse(target.sm),
        driver=None,
        inventory=replace(scanned(), machine=machine),
    )
    for check in CHECKS:
        for finding in check.run(question) if check.id in IDS else ():
            print(check.id, finding.subject, finding.status.value, finding.message)  # noqa: T201
            # A link or a launch may be slow on a sound card; its memory, and data, may not be wrong.
            assert finding.status.value != "fail", finding
    first = tried[0]
    if target.limits is not None and target.limits.bandwidth is not None:
        assert first.copied is not None
        # Nothing is faster than its maker says: else bytes or time were counted wrongly.
        assert 0.5 < first.copied.rate / target.limits.bandwidth < 1.02
