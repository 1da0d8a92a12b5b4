"""One process of a collective: the steps on one card, with results that are known to the bit.

All numbers are small integers, so that their sums are exact in whatever order they are added.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from envcheck.core.collective import Wrong
from envcheck.guest.journal import Journal
from envcheck.guest.ops.op import Tensor
from envcheck.guest.ops.torches import torch

_ELEMENTS = {"cuda": 1 << 22, "cpu": 1 << 16}
"""Of each exact step: more than one of NCCL's buffers holds (4 MiB by default), so that each is
used again."""
_MEASURED = {"cuda": 1 << 26, "cpu": 1 << 18}
"""Elements of 4 bytes of the measured all-reduce, where time is that of the bytes, not of starts."""
_ROUNDS = 6
_PRIME = 1021
"""Positions have a pattern that fits into no power of two, so that a displaced block shows."""
_FAREWELL = 5.0
"""Seconds to wait for the others at the end."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one process sits."""

    rank: int
    ranks: int
    kind: str
    """`cuda` or `cpu`."""

    @property
    def device(self) -> str:
        """As torch names it."""
        return f"cuda:{self.rank}" if self.kind == "cuda" else "cpu"

    def put(self, numbers: Tensor, dtype: Any) -> Tensor:
        """Return them on the card."""
        return numbers.to(dtype).to(self.device)


def notes(place: str, rank: int) -> str:
    """Name the file in which a process says where it is."""
    return os.path.join(place, f"rank{rank}")


def words_of_nccl(place: str, rank: int) -> str:
    """Name the file in which NCCL says what it does."""
    return os.path.join(place, f"nccl{rank}")


def work(kind: str, rank: int, ranks: int, variables: Mapping[str, str], place: str) -> Any:
    """Do all steps; returns what the measured one took."""
    os.environ.update(variables)
    os.environ["NCCL_DEBUG"] = "INFO"
    os.environ["NCCL_DEBUG_SUBSYS"] = "INIT"
    os.environ["NCCL_DEBUG_FILE"] = words_of_nccl(place, rank)
    seat, journal = Seat(rank, ranks, kind), Journal(notes(place, rank))
    journal.write("at", "connecting")
    distributed = importlib.import_module("torch.distributed")
    if kind == "cuda":
        torch().cuda.set_device(rank)
    store = distributed.FileStore(os.path.join(place, "store"), ranks)
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=timedelta(hours=1),  # whoever started this process has the deadline
    )
    for name, step in _STEPS.items():
        journal.write("at", name)
        for wrong in _wrong(name, *step(seat, distributed)):
            journal.write("wrong", wrong)
    journal.write("at", "all_reduce measured")
    took, found, expected = _measured(seat, distributed)
    for wrong in _wrong("all_reduce measured", found, expected):
        journal.write("wrong", wrong)
    journal.write("at", "end")
    _leave_together(store, ranks)
    return took


def _leave_together(store: Any, ranks: int) -> None:
    """Wait until all are done: who leaves first takes its side of the connections with it."""
    until = time.monotonic() + _FAREWELL
    store.add("done", 1)
    while store.add("done", 0) < ranks and time.monotonic() < until:
        time.sleep(0.01)


def _wrong(step: str, found: Tensor, expected: Tensor) -> list[Wrong]:
    """Compare on the processor, which waits until the card is done."""
    found, expected = found.cpu().double(), expected.cpu().double()
    places = (found != expected).flatten().nonzero().flatten()  # what is no number differs too
    if not len(places):
        return []
    first = int(places[0])
    return [
        Wrong(
            step=step,
            elements=len(places),
            of=expected.numel(),
            position=first,
            expected=str(expected.flatten()[first].item()),
            found=str(found.flatten()[first].item()),
        )
    ]


def _positions(seat: Seat) -> Tensor:
    return torch().arange(_ELEMENTS[seat.kind])


def _sum_fp32(seat: Seat, distributed: Any) -> tuple[Tensor, Tensor]:
    pattern = _positions(seat) % _PRIME
    mine = seat.put(pattern * (seat.rank + 1), torch().float32)
    distributed.all_reduce(mine)
    return mine, pattern * (seat.ranks * (seat.ranks + 1) // 2)


def _bit(positions: Tensor, rank: int) -> Tensor:
    """Return 0 or 1, differently on each rank; a sum of 256 of them is exact in bf16."""
    return (positions % _PRIME >> rank % 10) & 1


def _sum_bf16(seat: Seat, distributed: Any) -> tuple[Tensor, Tensor]:
    positions = _positions(seat)
    mine = seat.put(_bit(positions, seat.rank), torch().bfloat16)
    distributed.all_reduce(mine)
    return mine, sum(_bit(positions, rank) for rank in range(seat.ranks))


def _gathered(seat: Seat, distributed: Any) -> tuple[Tensor, Tensor]:
    pattern = _positions(seat) % _PRIME
    mine = seat.put(pattern + seat.rank, torch().float32)
    parts = [torch().full_like(mine, float("nan")) for _ in range(seat.ranks)]
    distributed.all_gather(parts, mine)
    return torch().stack(parts), torch().stack([pattern + rank for rank in range(seat.ranks)])


def _copied(seat: Seat, distributed: Any) -> tuple[Tensor, Tensor]:
    pattern, last = _positions(seat) % _PRIME, seat.ranks - 1
    mine = seat.put(pattern + seat.rank, torch().float32)
    distributed.broadcast(mine, src=last)
    return mine, pattern + last


_STEPS = {
    "all_reduce fp32": _sum_fp32,
    "all_reduce bf16": _sum_bf16,
    "all_gather": _gathered,
    "broadcast": _copied,
}


def _measured(seat: Seat, distributed: Any) -> tuple[dict[str, float], Tensor, Tensor]:
    """Sum the same tensor several times; what comes out is known as long as it is exact."""
    positions = torch().arange(_MEASURED[seat.kind])
    numbers = seat.put(_bit(positions, seat.rank), torch().float32)
    times, rounds = [], 0
    # After n rounds no number is above ranks ** n, and fp32 is exact up to 2 ** 24.
    while rounds < _ROUNDS and seat.ranks ** (rounds + 1) <= 1 << 24:
        _finish(seat)
        started = time.perf_counter()
        distributed.all_reduce(numbers)
        _finish(seat)
        times.append(time.perf_counter() - started)
        rounds += 1
    once = sum(_bit(positions, rank) for rank in range(seat.ranks))
    took = statistics.median(times[1:] or times)  # the first one may connect
    size = numbers.numel() * numbers.element_size()
    return {"seconds": took, "bytes": size}, numbers, once * seat.ranks ** (rounds - 1)


def _finish(seat: Seat) -> None:
    if seat.kind == "cuda":
        torch().cuda.synchronize()
