"""Copies between each two cards: whether they arrive, unchanged, and how fast.

Two cards are tried in one child, which may hang: that is what a broken path between them does.
First by way of the host, both directions, then with peer access, so that what is known to work
is on record before what may hang.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from functools import partial
from itertools import combinations

from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.exchanged import Exchanged, Passage
from envcheck.guest import peer_copies, trial, words
from envcheck.guest.driver import LIBRARY
from envcheck.guest.journal import Journal

_LONGEST, _SHORTEST = 30.0, 15.0
"""Seconds for two cards: contexts on both take some, the copies themselves well below one."""

Pair = tuple[int, int]


def exchange(cards: Cards, seconds: float, *, library: str = LIBRARY) -> Exchanged | None:
    """Try each two cards; None where there are not two."""
    shown = cards.driver.cards if cards.driver is not None else ()
    if len(shown) < 2:
        return None
    until = time.monotonic() + seconds
    claimed: list[Pair] = []
    passages: list[Passage] = []
    left: dict[str, str] = {}
    for pair in combinations(range(len(shown)), 2):
        remaining = until - time.monotonic()
        if remaining <= 0:
            left |= dict.fromkeys(_both(pair), "no time was left")
            continue
        deadline = max(_SHORTEST, min(_LONGEST, remaining))
        may, done, why = _try(pair, deadline, library)
        claimed += may
        passages += done
        left |= why
    return Exchanged(
        cards=tuple(card.uuid for card in shown),
        claimed=tuple(claimed),
        passages=tuple(passages),
        left=left,
    )


def _both(pair: Pair) -> tuple[str, str]:
    one, other = pair
    return f"{one} -> {other}", f"{other} -> {one}"


def _try(
    pair: Pair, deadline: float, library: str
) -> tuple[list[Pair], list[Passage], dict[str, str]]:
    """Try two cards; returns what the driver claims, what was done, and what was not, with why."""
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        journal = Journal(os.path.join(folder, "copies"))
        work = partial(peer_copies.between, pair, library, journal)
        ended = trial.run(work, deadline=deadline)
        lines = journal.lines()
    claimed: list[Pair] = []
    done: list[Passage] = []
    begun: Passage | None = None
    failed = ""
    for kind, value in lines:
        if kind == "claimed":
            claimed.append((value[0], value[1]))
        elif kind == "begun":
            begun = codec.from_json(Passage, value, "begun")
        elif kind == "done":
            done.append(codec.from_json(Passage, value, "done"))
            begun = None
        elif kind == "failed":
            failed = value
    if not ended.outcome.ok:
        failed = words.reason(ended.outcome)
        if begun is not None:
            hung = ended.outcome.status == "timed-out"
            done.append(replace(begun, error=failed, hung=hung))
    return claimed, done, _left(pair, claimed, done, failed or "the process ended before")


def _left(pair: Pair, claimed: list[Pair], done: list[Passage], why: str) -> dict[str, str]:
    """Name what of a pair was not tried."""
    tried = {(passage.source, passage.target, passage.direct) for passage in done}
    left = {}
    for label, way in zip(_both(pair), (pair, pair[::-1]), strict=True):
        if (*way, False) not in tried:
            left[label] = why
        if way in claimed and (*way, True) not in tried:
            left[f"{label}, directly"] = why
    return left
