"""Run operations on the card, in few processes, the most valuable things first.

One child imports torch without touching the card, and forks those that do: a process costs
half a second, so operations share one until one of them ends it (see `processes`). The first
case of each operation and dtype comes before any second one, and what torch imports at first
use is imported while others run.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from threading import Thread
from typing import Any, TypeVar

from envcheck.core import codec
from envcheck.core.collective import Collective
from envcheck.core.executed import Card, Executed, Smoked
from envcheck.core.rated import Rated
from envcheck.core.request import ExecuteRequest
from envcheck.core.sm import Sm
from envcheck.guest import card, collective, kernel_ops, processes, rating, trial, words
from envcheck.guest.ahead import Ahead
from envcheck.guest.journal import Journal
from envcheck.guest.measuring import Task
from envcheck.guest.ops import catalogue, settings
from envcheck.guest.ops.op import Op
from envcheck.guest.processes import START_SECONDS, Limits
from envcheck.guest.spent import Spent

_IMPORT_SECONDS = 120
_FOR_EACH = 4
"""Processors for each process that imports ahead."""
_BESIDE = 3.0
"""Seconds of a budget that are for the rest of a check: starting, looking at the environment,
judging. On machines with an H200 it was 1.5 to 3 s."""
_CPU_RANKS = 2
"""Processes that exchange data where there is no card to count."""
_FOR_GRADIENTS = ("torch.fx.experimental.symbolic_shapes",)
"""What torch imports when it first computes a gradient."""


T = TypeVar("T")
Ready = Callable[[float], object]
"""Waits for so many seconds at most until CUDA C++ kernels are built."""


def execute(
    request: ExecuteRequest,
    ops: Sequence[Op] = catalogue.OPS,
    *,
    smoked: tuple[Smoked, ...] = (),
    ready: Ready = float,
) -> Executed:
    """Run the operations in children of this process; what is known when they end."""
    started = time.monotonic()
    folder = tempfile.mkdtemp(prefix="envcheck-")
    try:
        journal = Journal(os.path.join(folder, "all"))
        work = partial(_execute_all, request, ops, folder, ready)
        ended = trial.run(work, deadline=patience(request) - START_SECONDS)
        facts, runs, groups = journal.read()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    about = _value(Card, facts, "card")
    return Executed(
        outcome=replace(ended.outcome, stdout=(), stderr=()) if ended.outcome.ok else ended.outcome,
        message=facts.get("message") or words.reason(ended.outcome),
        parts=request.parts,
        budget=float(request.budget),
        seconds=round(time.monotonic() - started, 3),
        card=about,
        rated=_value(Rated, facts, "rated"),
        collective=_value(Collective, facts, "collective"),
        torch=facts.get("torch"),
        cuda=facts.get("cuda"),
        settings=facts.get("settings", {}),
        smoked=smoked,
        runs=runs,
        groups=groups,
        spent=facts.get("spent", {}),
    )


def _value(kind: type[T], facts: Mapping[str, Any], name: str) -> T | None:
    return codec.from_json(kind, facts[name], name) if facts.get(name) else None


def patience(request: ExecuteRequest) -> float:
    """Return the seconds after which even the process that watches over all others is given up."""
    started = max(START_SECONDS, request.budget)  # of a driver that must compile first
    hanging = 2 * collective.DEADLINE if request.exchange else 0  # in both of its modes
    return request.budget + started + _IMPORT_SECONDS + 2 * START_SECONDS + hanging


def _execute_all(request: ExecuteRequest, ops: Sequence[Op], folder: str, ready: Ready) -> None:
    """Import torch and fork; runs in a child, because importing it may be all it takes."""
    journal, started = Journal(os.path.join(folder, "all")), time.monotonic()
    spent = Spent()
    settings.pin_variables()
    # Whether there is a card is asked in a way that does not start CUDA: forks could not use it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # Nothing that was compiled before may be taken for what is compiled now.
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        os.environ[name] = os.path.join(folder, name.lower())
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # an import would start a pool of processes
    with spent.on("imports"):
        torch = importlib.import_module("torch")
    journal.write("facts", {"torch": torch.__version__, "cuda": torch.version.cuda})
    sm, visible, known = None, _CPU_RANKS, _Imports()
    aside = known.thread(_FOR_GRADIENTS)
    if request.device == "cuda":
        # A driver that must compile first takes its time, which is a fact about it.
        deadline = max(START_SECONDS, request.budget)
        with spent.on("processes"):
            seen = trial.run(_describe, deadline=deadline, meanwhile=aside)
        if not isinstance(seen.value, dict):
            journal.write("facts", {"message": words.reason(seen.outcome)})
            return
        journal.write("facts", seen.value)
        sm, visible = Sm.parse(seen.value["card"]["sm"]), seen.value["visible"]
    until = started + request.budget - min(_BESIDE, request.budget / 2)
    limits = Limits(until=until, budget=request.budget, sm=sm)
    batches = _batches(request, ops)
    compiling = _compiling(request, batches, limits)
    if request.rate > 0 or request.exchange:
        known.wait(aside, limits.left)
        _measure(request, limits, visible, journal, spent)
    waiting: dict[int, Ahead] = {}
    for number, tasks in enumerate(batches):
        with spent.on("imports"):
            known.wait(aside, limits.left)
            if limits.left > 0:
                known.bring(_imports(tasks))
        part = tasks[0].op.part
        with spent.on("compiling") if part in ("triton", "cuda") else contextlib.nullcontext():
            if part == "triton" and compiling is not None:
                compiling.wait(limits.left)
                compiling = None
            elif part == "cuda":
                ready(limits.left)
        waiting |= _sent_ahead(batches, number, waiting, limits, folder)
        aside = known.thread(_imports_ahead(batches[number + 1 :]))
        processes.run(tasks, limits, journal, folder, aside, waiting.pop(number, None))
    for process in waiting.values():
        process.leave()
    journal.write("spent", spent.rounded())


def _measure(
    request: ExecuteRequest, limits: Limits, visible: int, journal: Journal, spent: Spent
) -> None:
    """Find out how fast the card multiplies, and what several do with one another."""
    folder = os.path.dirname(journal.path)
    if request.rate > 0:
        seconds = max(min(request.rate, limits.left), 0)
        with spent.on("rating"):
            rated = rating.rate(request.device, limits.sm, seconds, folder, cards=visible)
        journal.write("facts", {"rated": codec.to_json(rated)})
    if request.exchange:
        with spent.on("exchanging"):
            exchanged = collective.exchange(request.device, visible, folder)
        journal.write("facts", {"collective": codec.to_json(exchanged)})


def _sent_ahead(
    batches: Sequence[Sequence[Task]],
    number: int,
    waiting: Mapping[int, Ahead],
    limits: Limits,
    folder: str,
) -> dict[int, Ahead]:
    """Have the next extensions imported while a batch runs: as many as leave it processors."""
    room = max(1, len(os.sched_getaffinity(0)) // _FOR_EACH) - len(waiting)
    later = range(number + 1, len(batches))
    wanted = [n for n in later if n not in waiting and batches[n][0].op.part == "extensions"]
    sent = {}
    for n in wanted[: max(room, 0)] if limits.left > 0 else ():
        tasks, file = processes.fitting(batches[n], limits.sm), os.path.join(folder, f"own{n}")
        if tasks:
            sent[n] = Ahead(tasks, processes.run_tasks, file, deadline=limits.left)
    return sent


def _compiling(
    request: ExecuteRequest, batches: Sequence[Sequence[Task]], limits: Limits
) -> trial.Aside | None:
    """Have Triton kernels compiled behind what runs before them; None where there are none."""
    sm = limits.sm
    if sm is None or all(tasks[0].op.part != "triton" for tasks in batches):
        return None

    def work() -> None:
        trial.step_back()
        kernel_ops.precompile(request, sm, limits.left)

    return trial.Aside(work, deadline=limits.left)


def _describe() -> dict[str, Any]:
    about = codec.to_json(card.describe())
    visible = importlib.import_module("torch").cuda.device_count()
    return {"card": about, "visible": visible, "settings": settings.described()}


class _Imports:
    """Imports in the process that forks, once for all children: in a thread, when there is time."""

    def bring(self, names: Iterable[str]) -> None:
        """Import; what is not there is left to whoever needs it."""
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    def thread(self, names: Iterable[str]) -> Thread:
        """Return a thread that will import, for `trial.run` to start."""
        return Thread(target=self.bring, args=(tuple(names),), daemon=True)

    def wait(self, thread: Thread, seconds: float) -> None:
        """Let it come to its end, as a fork must not find it at work."""
        if thread.ident is None:
            thread.start()
        thread.join(max(seconds, 0))


def _imports(tasks: Iterable[Task]) -> list[str]:
    return list(dict.fromkeys(name for task in tasks for name in task.op.imports))


def _imports_ahead(batches: Iterable[Sequence[Task]]) -> list[str]:
    """Return what the next of these that needs any long import needs, so far as it is not there."""
    missing = ([n for n in _imports(tasks) if n not in sys.modules] for tasks in batches)
    return next(filter(None, missing), [])


def _batches(request: ExecuteRequest, ops: Sequence[Op]) -> list[list[Task]]:
    """Return the tasks of each process, part after part as the operations come."""
    parts = groupby(ops, key=lambda op: op.part)
    return [batch for _, group in parts for batch in _of_part(request, list(group))]


def _of_part(request: ExecuteRequest, ops: Sequence[Op]) -> list[list[Task]]:
    """Return the tasks of each process: first those that need no long import, case by case.

    Where some of a process's operations need one, the first case of each other operation and
    dtype gets a process of its own, in whose time it is imported.
    """
    slow = {_process(op) for op in ops if op.imports}
    early: dict[str, list[tuple[int, Task]]] = {}
    late: dict[str, list[tuple[int, Task]]] = {}
    for op in ops:
        if request.families and op.family not in request.families:
            continue
        for dtype in op.dtypes:
            for number, case in enumerate(op.pairs(dtype)):
                task = Task(op=op, dtype=dtype, case=case, seed=request.seed, device=request.device)
                at_once = not op.imports and (number == 0 or _process(op) not in slow)
                batches = early if at_once else late
                batches.setdefault(_process(op), []).append((number, task))
    in_order = [sorted(batch, key=itemgetter(0)) for batch in (*early.values(), *late.values())]
    return [[task for _, task in batch] for batch in in_order]


def _process(op: Op) -> str:
    return op.process or op.family
