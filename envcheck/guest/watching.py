"""What NVML says of each card while something else works on it.

`with Watcher() as watcher: ...` samples in a child of its own, which ends when the block does,
and with its parent. A child that hangs or crashes costs what it saw, and never the work.
"""

from __future__ import annotations

import contextlib
import os
import select
import statistics
import time
from types import TracebackType
from typing import Any, final

from envcheck.core import codec
from envcheck.core.managed import Load, Range, Watched
from envcheck.guest import counting, devices, kernel_log, nvml, trial, words

_PERIOD = 0.2
_LONGEST = 3600.0
"""Seconds after which the child ends by itself."""
_PATIENCE = 10.0
"""Seconds that it may take to stop, and to read the counters of all cards."""
_VALUES = (
    *("generation", "width", "sm_clock", "memory_clock"),
    *("power", "temperature", "utilization"),
)
_Sample = dict[str, Any]


@final
class Watcher:
    """Samples all cards while the block runs."""

    def __init__(self) -> None:
        self.why = "it was not begun"
        """Why there is no result."""
        self._told: Watched | None = None
        self._aside: trial.Aside | None = None

    def __enter__(self) -> Watcher:
        """Start the child; where none can be started, the work goes on unwatched."""
        heard, self._stop = os.pipe()
        mine = self._stop

        def work() -> object:
            os.close(mine)  # so that the end of the parent is the end of this pipe
            return codec.to_json(_watch(heard))

        try:
            self._aside = trial.Aside(work, deadline=_LONGEST)
        except OSError as error:
            self.why = f"watching could not begin: {error}"
        finally:
            os.close(heard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the child; wait for its answer, unless the block itself failed."""
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            os.write(self._stop, b".")
        os.close(self._stop)
        if self._aside is None:
            return
        ended = self._aside.wait(_PATIENCE if kind is None else 0)
        if isinstance(ended.value, dict):
            self._told, self.why = codec.from_json(Watched, ended.value, "watched"), ""
        else:
            self.why = words.reason(ended.outcome)

    def result(self) -> Watched | None:
        """Return what was seen; None, and `why`, where nothing was."""
        return self._told


def _watch(stop: int) -> Watched:
    """Sample until there is something to read, be it the end of the pipe."""
    started = time.monotonic()
    nvml.binding().nvmlInit()
    opened = [(index, card, why) for index, card, why in nvml.handles()]
    seen: list[list[_Sample]] = [[] for _ in opened]
    due, ear = time.monotonic(), select.poll()
    ear.register(stop)
    while not ear.poll(max(0.0, due - time.monotonic()) * 1000):
        for samples, (_, card, _) in zip(seen, opened, strict=True):
            if card is not None:
                samples.append(_sample(card))
        due = max(due + _PERIOD, time.monotonic())
    return Watched(
        seconds=round(time.monotonic() - started, 3),
        cards=tuple(
            _load(index, card, samples)
            if card is not None
            else Load(index=index, unread={"handle": why})
            for samples, (index, card, why) in zip(seen, opened, strict=True)
        ),
        xids=kernel_log.xids()[0],
    )


def _sample(card: nvml.Asked) -> _Sample:
    generation, width = devices.generation_and_width(card)
    sm, memory = devices.sm_and_memory_clock(card)
    used = card.ask("utilization", "DeviceGetUtilizationRates")
    return {
        "generation": generation,
        "width": width,
        "sm_clock": sm,
        "memory_clock": memory,
        "power": card.watts("power", "DeviceGetPowerUsage"),
        "temperature": devices.temperature(card),
        "utilization": None if used is None else int(used.gpu),
        "reasons": devices.reasons(card),
    }


def _is_busy(sample: _Sample) -> bool:
    """Say whether something ran: a kernel, or a copy, of which only the idle state knows."""
    reasons = sample["reasons"]
    return bool(sample["utilization"]) or (reasons is not None and "idle" not in reasons)


def _load(index: int, card: nvml.Asked, samples: list[_Sample]) -> Load:
    busy = [sample for sample in samples if _is_busy(sample)]
    told = [sample["reasons"] for sample in busy if sample["reasons"] is not None]
    names = [name for reasons in told for name in reasons]
    ranges = {name: _range(busy, name) for name in _VALUES}
    return Load(
        index=index,
        uuid=card.word("uuid", "DeviceGetUUID"),
        samples=len(samples),
        busy=len(busy),
        reasons={name: names.count(name) for name in dict.fromkeys(names)} if told else None,
        after=counting.counters(card),
        unread=card.unread,
        **ranges,
    )


def _range(samples: list[_Sample], name: str) -> Range | None:
    values = [float(sample[name]) for sample in samples if sample[name] is not None]
    if not values:
        return None
    return Range(least=min(values), median=statistics.median(values), most=max(values))
