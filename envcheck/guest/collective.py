"""Sums and copies over all visible cards by NCCL, one process on each, with a deadline.

A collective that hangs is what breaks most often between cards, and it says nothing: so each
process writes down which step it is at, and all are killed when one takes too long. All of it
is done twice, the second time without copies between cards, which tells whose fault a hang is.
Run in a process that has imported torch and not touched a card.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial

from envcheck.core import codec
from envcheck.core.collective import WITHOUT_P2P, Collective, Mode, Rank, Wrong
from envcheck.guest import exchanging, trial, words
from envcheck.guest.journal import Journal
from envcheck.guest.ops.torches import torch

DEADLINE = 40.0
"""Seconds for the processes of one mode; NCCL itself waits for ever. The measured step takes
longest: six sums of 256 MB pass at most 3 GB through a link, 3 s at the 1 GB/s of one lane of
PCI Express 3.0. The driver's and NCCL's start come on top, and all of it may be ten times as slow
on a machine that is shared."""

# As NCCL 2.18 to 2.30 print them under NCCL_DEBUG=INFO (src/transport/*.cc: `Channel 00/0 :
# 0[0] -> 1[1] via P2P/CUMEM/read`, `via SHM/direct`, `[send] via NET/Socket/0`). What follows
# these words is how a way is used. Multicast over NVLink has a line of its own.
_WAY = re.compile(r"\bvia (P2P/(?:CUMEM|MNNVL|IPC|direct pointer|indirect)|SHM|(?:COLL)?NET/\w+)")
_MULTICAST = re.compile(r"\bConnected (NVLS) tree")
_WARNING = re.compile(r"\bNCCL WARN (.+)")
_SHOWN = 3


def exchange(device: str, cards: int, folder: str, deadline: float = DEADLINE) -> Collective:
    """Run both modes; never raises for what cards do."""
    variables = {n: v for n, v in sorted(os.environ.items()) if n.startswith("NCCL_")}
    about = partial(
        Collective,
        backend=_backend(device),
        cards=cards,
        deadline=deadline,
        variables=variables,
    )
    if cards < 2:
        return about(left="one card is visible: NCCL takes no card for two processes")
    if not torch().distributed.is_available():
        return about(left="this torch is built without torch.distributed")
    if device == "cuda" and not torch().distributed.is_nccl_available():
        return about(left="this torch is built without NCCL")
    first = _mode(device, cards, {}, folder, deadline)
    if variables.items() >= WITHOUT_P2P.items():
        second = Mode(variables=WITHOUT_P2P, left="the environment sets it already")
    elif first.holds and first.transports and not any(map(_direct, first.transports)):
        second = Mode(variables=WITHOUT_P2P, left="nothing was copied directly before")
    else:
        second = _mode(device, cards, WITHOUT_P2P, folder, deadline)
    return about(modes=(first, second))


def _direct(way: str) -> bool:
    return way.startswith(("P2P", "NVLS"))


def _backend(device: str) -> str:
    if device == "cpu":
        return "gloo"
    version = getattr(torch().cuda, "nccl", None)
    return "NCCL " + ".".join(map(str, version.version())) if version is not None else "NCCL"


def _mode(
    device: str, cards: int, variables: Mapping[str, str], folder: str, deadline: float
) -> Mode:
    """Run all steps in one process for each card."""
    started = time.monotonic()
    place = os.path.join(folder, "-".join(("collective", *variables)))
    os.mkdir(place)
    works = [
        partial(exchanging.work, device, rank, cards, variables, place) for rank in range(cards)
    ]
    ended = trial.run_all(works, deadline=deadline, parallel=cards)
    said = [_said(place, rank) for rank in range(cards)]
    values = [t.value for t in ended if isinstance(t.value, dict)]
    slowest = max((v["seconds"] for v in values), default=None) if len(values) == cards else None
    size = values[0]["bytes"] if slowest else None
    return Mode(
        variables=variables,
        ranks=tuple(
            _rank(number, each, place, lines)
            for number, (each, lines) in enumerate(zip(ended, said, strict=True))
        ),
        transports=tuple(sorted({way for lines in said for way in ways(lines)})),
        bytes=size,
        milliseconds=round(slowest * 1000, 4) if slowest else None,
        bus=_bus(size, slowest, cards) if size and slowest else None,
        seconds=round(time.monotonic() - started, 3),
    )


def _bus(size: int, seconds: float, cards: int) -> float:
    """Return 1e9 bytes a second, comparable with a link's own whatever the number of cards.

    Each byte of an all-reduce passes each card's link 2(n-1)/n times. Source: nccl-tests,
    doc/PERFORMANCE.md, "Bus bandwidth".
    """
    return round(size / seconds * 2 * (cards - 1) / cards / 1e9, 3)


def _rank(number: int, ended: trial.Trial, place: str, lines: Iterable[str]) -> Rank:
    """Put together how one process ended, what it found, and where it was."""
    noted = Journal(exchanging.notes(place, number)).lines()
    warned = (m[1][:300] for line in lines if (m := _WARNING.search(line)))
    return Rank(
        rank=number,
        outcome=ended.outcome,
        message=words.reason(ended.outcome),
        reached=next((v for kind, v in reversed(noted) if kind == "at"), "the start"),
        wrong=tuple(codec.from_json(Wrong, v, "wrong") for kind, v in noted if kind == "wrong"),
        warnings=tuple(dict.fromkeys(warned))[:_SHOWN],
    )


def _said(place: str, rank: int) -> tuple[str, ...]:
    """Return what NCCL wrote; nothing where it did not come to that."""
    try:
        with open(
            exchanging.words_of_nccl(place, rank), encoding="utf-8", errors="replace"
        ) as file:
            return tuple(file)
    except OSError:
        return ()


def ways(lines: Iterable[str]) -> Iterable[str]:
    """Return by which way each connection goes that NCCL tells of."""
    for line in lines:
        if match := _WAY.search(line) or _MULTICAST.search(line):
            yield match[1]
