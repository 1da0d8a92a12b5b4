"""How fast a card multiplies matrices, measured on large products by PyTorch, and a burn after it.

All of it runs in a child of the process that imported torch, and is written down piece by
piece: a card that hangs or falls off in the middle keeps what it did before.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from envcheck.core import codec
from envcheck.core.rated import Burn, Rate, Rated
from envcheck.core.sm import Sm
from envcheck.guest import burning, trial, words
from envcheck.guest.burning import Product
from envcheck.guest.journal import Journal
from envcheck.guest.ops import settings
from envcheck.guest.ops.torches import torch

# The first with matrix units for it: PTX ISA, "Target ISA Notes" of wmma and mma.
_LEAST = {"bf16": 80, "fp16": 70, "tf32": 80, "fp8": 89}
_SHARE = 1 / 6
"""Of the seconds, for each rate; the burn has the rest."""
_LAST = 1 / 4
"""Of the burn's seconds, for fp32 without matrix units."""
_AT_ONCE = 8
"""Products that wait for the card together, so that it never waits for the next."""
_SETTLING = 1 / 5
"""Of the products, that count as the time until clocks have settled."""
_SIZES = (8192, 4096, 2048, 1024)
_BYTES = 32
"""For each element of one matrix: five of them in two or four bytes, and two in float64."""
_ON_CPU = 128
_PATIENCE = 30.0
"""Seconds for the start of the driver, and for a card that is slower than any."""


def rate(
    device: str,
    sm: Sm | None,
    seconds: float,
    folder: str,
    product: Product = burning.multiply,
) -> Rated:
    """Measure for so many seconds; `product` is what the burn repeats."""
    started, journal = time.monotonic(), Journal(os.path.join(folder, "rated"))
    work = partial(_rate_all, device, sm, seconds, journal, product)
    ended = trial.run(work, deadline=seconds + _PATIENCE)
    lines = journal.lines()
    reached = next((value for kind, value in reversed(lines) if kind == "at"), "the start")
    return Rated(
        outcome=ended.outcome,
        message=words.reason(ended.outcome),
        reached="" if ended.outcome.ok else reached,
        seconds=round(time.monotonic() - started, 3),
        rates=tuple(codec.from_json(Rate, v, "rate") for k, v in lines if k == "rate"),
        burns=tuple(codec.from_json(Burn, v, "burn") for k, v in lines if k == "burn"),
        left={name: why for k, v in lines if k == "left" for name, why in v.items()},
        failed={name: why for k, v in lines if k == "failed" for name, why in v.items()},
    )


def _rate_all(
    device: str, sm: Sm | None, seconds: float, journal: Journal, product: Product
) -> None:
    """Measure each type, then burn for what is left."""
    until = time.monotonic() + seconds
    settings.described()
    size = _size(device)
    for dtype in _LEAST:
        if why := _why_not(dtype, device, sm):
            journal.write("left", {dtype: why})
            continue
        measure = partial(_rate, dtype, size, device, seconds * _SHARE)
        _noted(journal, dtype, "rate", measure)
    now = time.monotonic()
    middle = until - max(until - now, 0) * _LAST
    main = "fp16" if _why_not("bf16", device, sm) else "bf16"
    for dtype, end in ((main, middle), ("fp32", until)):
        # Without matrix units a product takes many times as long.
        smaller = min(size, _SIZES[1]) if dtype == "fp32" else size
        work = partial(burning.burn, dtype, smaller, device, end, product)
        _noted(journal, f"burn {dtype}", "burn", work)


def _noted(journal: Journal, name: str, kind: str, work: Callable[[], object]) -> None:
    """Do one thing and write down what came of it; what raises is a fact of its own."""
    journal.write("at", name)
    try:
        journal.write(kind, work())
    except (RuntimeError, TypeError, ValueError) as error:  # CUDA's are of the first kind
        said = str(error).strip() or type(error).__name__
        journal.write("failed", {name: said.splitlines()[0][:300]})


def _why_not(dtype: str, device: str, sm: Sm | None) -> str:
    if dtype == "fp8" and device == "cpu":
        return "not measured on the processor"
    if sm is not None and sm.number < _LEAST[dtype]:
        return f"{sm} has no matrix units for it"
    return "" if dtype != "fp8" or hasattr(torch(), "_scaled_mm") else "this torch has no product"


def _size(device: str) -> int:
    """Return the largest size whose matrices fit, so that the whole chip has work."""
    if device == "cpu":
        return _ON_CPU
    free, _ = torch().cuda.mem_get_info()
    return next((size for size in _SIZES if _BYTES * size**2 < free), _SIZES[-1])


def _rate(dtype: str, size: int, device: str, seconds: float) -> Rate:
    settings.pin(settings.TF32 if dtype == "tf32" else settings.PINNED)
    call = _call(dtype, size, device)
    call()  # loads the kernel
    (slowest,), _ = _times(call, 1, device)
    at_once = max(1, min(_AT_ONCE, int(seconds / 4 / slowest)))
    started, times, clocks = time.monotonic(), [slowest], []
    while len(times) <= at_once or time.monotonic() - started < seconds:
        more, clock = _times(call, at_once, device)
        times += more
        clocks += [clock] if clock is not None else []
    settings.pin(settings.PINNED)
    median = statistics.median(times[int(len(times) * _SETTLING) :])
    operations = 2 * size**3  # one multiplication and one addition for each of K terms
    return Rate(
        dtype=dtype,
        size=size,
        tflops=round(operations / median / 1e12, 4),
        tflops_at_first=round(operations / statistics.median(times[:at_once]) / 1e12, 4),
        milliseconds=round(median * 1000, 4),
        repetitions=len(times),
        seconds=round(sum(times), 3),
        clock=round(statistics.median(clocks)) if clocks else None,
    )


def _call(dtype: str, size: int, device: str) -> Callable[[], object]:
    """Return the product; of random numbers, as those of zeros take less power and run faster."""
    generator = torch().Generator(device).manual_seed(1)
    a, b = (torch().randn(size, size, generator=generator, device=device) for _ in range(2))
    if dtype == "fp8":
        one = torch().ones((), device=device)
        left, right = (each.to(torch().float8_e4m3fn) for each in (a, b))
        scales = {"scale_a": one, "scale_b": one, "out_dtype": torch().bfloat16}
        # cuBLASLt takes the second operand by columns.
        return partial(torch()._scaled_mm, left, right.t(), use_fast_accum=True, **scales)  # noqa: SLF001 - there is no other
    kind = {"bf16": torch().bfloat16, "fp16": torch().float16}.get(dtype, torch().float32)
    left, right = a.to(kind), b.to(kind)
    return partial(burning.multiply, left, right, torch().empty_like(left))


def _times(call: Callable[[], object], count: int, device: str) -> tuple[list[float], int | None]:
    """Return the seconds of each of some calls, and the clock in their middle."""
    if device == "cpu":
        marks = [time.perf_counter()]
        for _ in range(count):
            call()
            marks.append(time.perf_counter())
        return [after - before for before, after in pairwise(marks)], None
    events = [torch().cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    clock = _clock()
    events[-1].synchronize()
    return [before.elapsed_time(after) / 1000 for before, after in pairwise(events)], clock


def _clock() -> Any:
    """Return the clock of the multiprocessors, where this environment can ask NVML for it."""
    with contextlib.suppress(Exception):  # NVML's own errors are a type of a package not named here
        return int(torch().cuda.clock_rate())
    return None
