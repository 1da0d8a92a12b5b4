"""How fast a card multiplies matrices, measured on large products by PyTorch, and a burn after it.

All of it runs in children of the process that imported torch, one for each card and all at
once, as a job would have them work. It is written down piece by piece: a card that hangs or
falls off in the middle keeps what it did before.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from envcheck.core import codec
from envcheck.core.rated import Burn, Rate, Rated, label
from envcheck.core.sm import Sm
from envcheck.guest import burning, trial, words
from envcheck.guest.burning import Product
from envcheck.guest.journal import Journal
from envcheck.guest.ops import settings
from envcheck.guest.ops.torches import torch
from envcheck.guest.processes import START_SECONDS

# The first with matrix units for it: PTX ISA, "Target ISA Notes" of wmma and mma.
_LEAST = {"bf16": 80, "fp16": 70, "tf32": 80, "fp8": 89}
_SHARE = 1 / 8
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
_PATIENCE = float(START_SECONDS)
"""Seconds beyond those asked for: the driver's start, and a card that is slower than any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What one process is to measure, and where it writes it down."""

    device: str
    """`cuda` or `cpu`."""
    card: int
    sm: Sm | None
    seconds: float
    journal: Journal
    product: Product


def rate(
    device: str,
    sm: Sm | None,
    seconds: float,
    folder: str,
    product: Product = burning.multiply,
    cards: int = 1,
) -> Rated:
    """Measure for so many seconds, on all cards at once; `product` is what the burn repeats."""
    started = time.monotonic()
    tasks = [
        _Task(
            device=device,
            card=card,
            sm=sm,
            seconds=seconds,
            journal=Journal(os.path.join(folder, f"rated{card}")),
            product=product,
        )
        for card in range(cards)
    ]
    works = [partial(_rate_all, task) for task in tasks]
    ended = trial.run_all(works, deadline=seconds + _PATIENCE, parallel=cards)
    lines = [line for task in tasks for line in task.journal.lines()]
    failed = {name: why for kind, v in lines if kind == "failed" for name, why in v.items()}
    for task, each in zip(tasks, ended, strict=True):
        if not each.outcome.ok:
            at = (value for kind, value in reversed(task.journal.lines()) if kind == "at")
            failed[next(at, label("start", task.card))] = words.reason(each.outcome)
    return Rated(
        cards=cards,
        seconds=round(time.monotonic() - started, 3),
        rates=tuple(codec.from_json(Rate, v, "rate") for k, v in lines if k == "rate"),
        burns=tuple(codec.from_json(Burn, v, "burn") for k, v in lines if k == "burn"),
        left={name: why for kind, v in lines if kind == "left" for name, why in v.items()},
        failed=failed,
    )


def _rate_all(task: _Task) -> None:
    """Measure each type, then burn for what is left."""
    until = time.monotonic() + task.seconds
    if task.device == "cuda":
        torch().cuda.set_device(task.card)
    settings.described()
    size = _size(task.device)
    for dtype in _LEAST:
        if why := _why_not(dtype, task):
            task.journal.write("left", {label(dtype, task.card): why})
        else:
            _noted(task, dtype, "rate", partial(_rate, dtype, size, task))
    now = time.monotonic()
    middle = until - max(until - now, 0) * _LAST
    main = "fp16" if _why_not("bf16", task) else "bf16"
    for dtype, end in ((main, middle), ("fp32", until)):
        # Without matrix units a product takes many times as long.
        smaller = min(size, _SIZES[1]) if dtype == "fp32" else size
        burn = partial(burning.burn, dtype, smaller, task.device, end, task.product)
        _noted(task, f"burn {dtype}", "burn", burn)


def _noted(task: _Task, part: str, kind: str, work: Callable[[], Rate | Burn]) -> None:
    """Do one thing and write down what came of it; what raises is a fact of its own."""
    name = label(part, task.card)
    task.journal.write("at", name)
    try:
        task.journal.write(kind, replace(work(), card=task.card))
    except (RuntimeError, TypeError, ValueError) as error:  # CUDA's are of the first kind
        said = str(error).strip() or type(error).__name__
        task.journal.write("failed", {name: said.splitlines()[0][:300]})


def _why_not(dtype: str, task: _Task) -> str:
    if dtype == "fp8" and task.device == "cpu":
        return "not measured on the processor"
    if task.sm is not None and task.sm.number < _LEAST[dtype]:
        return f"{task.sm} has no matrix units for it"
    return "" if dtype != "fp8" or hasattr(torch(), "_scaled_mm") else "this torch has no product"


def _size(device: str) -> int:
    """Return the largest size whose matrices fit, so that the whole chip has work."""
    if device == "cpu":
        return _ON_CPU
    free, _ = torch().cuda.mem_get_info()
    return next((size for size in _SIZES if _BYTES * size**2 < free), _SIZES[-1])


def _rate(dtype: str, size: int, task: _Task) -> Rate:
    device, seconds = task.device, task.seconds * _SHARE
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
        name=torch().cuda.get_device_name() if device == "cuda" else "",
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
