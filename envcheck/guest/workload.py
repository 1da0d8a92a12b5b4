"""Run operations on the card, each group in a process of its own, within a budget of seconds.

One child imports torch without touching the card and forks one for each family, because a
process costs half a second. A task that crashes, exits, hangs or leaves the card unusable ends
its process and costs one run; what was to come after it goes on in the next process. Results go through a file, line
by line, so that none is lost with the process that made it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from envcheck.core import codec
from envcheck.core.compiled import Outcome
from envcheck.core.executed import Card, Executed, Group, Smoked
from envcheck.core.request import ExecuteRequest
from envcheck.core.sm import Sm
from envcheck.guest import card, kernel_ops, listening, measuring, trial, words
from envcheck.guest.journal import Journal
from envcheck.guest.measuring import Task
from envcheck.guest.ops import catalogue, settings
from envcheck.guest.ops.op import Op

_IMPORT_SECONDS = 120
_START_SECONDS = 30
_MAX_LOST = 3
"""Processes that one operation may end before the rest of it is left out."""


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
        ended = trial.run(work, deadline=patience(request) - _START_SECONDS)
        facts, runs, groups = journal.read()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    about = codec.from_json(Card, facts["card"], "card") if facts.get("card") else None
    return Executed(
        outcome=replace(ended.outcome, stdout=(), stderr=()) if ended.outcome.ok else ended.outcome,
        message=facts.get("message") or words.reason(ended.outcome),
        parts=request.parts,
        budget=request.budget,
        seconds=round(time.monotonic() - started, 3),
        card=about,
        torch=facts.get("torch"),
        cuda=facts.get("cuda"),
        settings=facts.get("settings", {}),
        smoked=smoked,
        runs=runs,
        groups=groups,
    )


def patience(request: ExecuteRequest) -> float:
    """Return the seconds after which even the process that watches over all others is given up."""
    started = max(_START_SECONDS, request.budget)  # of a driver that must compile first
    return request.budget + started + _IMPORT_SECONDS + 2 * _START_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """When to stop, and what the card can do."""

    until: float
    budget: float
    sm: Sm | None

    @property
    def left(self) -> float:
        return self.until - time.monotonic()


def _execute_all(request: ExecuteRequest, ops: Sequence[Op], folder: str, ready: Ready) -> None:
    """Import torch and fork; runs in a child, because importing it may be all it takes."""
    journal, started = Journal(os.path.join(folder, "all")), time.monotonic()
    settings.pin_variables()
    # Whether there is a card is asked in a way that does not start CUDA: forks could not use it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # Nothing that was compiled before may be taken for what is compiled now.
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        os.environ[name] = os.path.join(folder, name.lower())
    torch = importlib.import_module("torch")
    journal.write("facts", {"torch": torch.__version__, "cuda": torch.version.cuda})
    sm = None
    if request.device == "cuda":
        # A driver that must compile first takes its time, which is a fact about it.
        seen = trial.run(_describe, deadline=max(_START_SECONDS, request.budget))
        if not isinstance(seen.value, dict):
            journal.write("facts", {"message": words.reason(seen.outcome)})
            return
        journal.write("facts", seen.value)
        sm = Sm.parse(seen.value["card"]["sm"])
    _prepare()
    limits = _Limits(until=started + request.budget, budget=request.budget, sm=sm)
    for tasks in _groups(request, ops):
        part = tasks[0].op.part
        if part == "triton" and sm is not None:
            kernel_ops.precompile(request, sm, limits.left)
        elif part == "cuda":
            ready(limits.left)
        _run_group(tasks, limits, journal, folder)


def _describe() -> dict[str, Any]:
    return {"card": codec.to_json(card.describe()), "settings": settings.described()}


def _prepare() -> None:
    """Import once what every child would: symbolic shapes for gradients, Dynamo for optimizers."""
    for name in ("torch.fx.experimental.symbolic_shapes", "torch._dynamo"):
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _groups(request: ExecuteRequest, ops: Sequence[Op]) -> list[list[Task]]:
    """Return the tasks of each family together, in the order of the operations."""
    groups: dict[str, list[Task]] = {}
    for op in ops:
        if request.families and op.family not in request.families:
            continue
        for dtype in op.dtypes:
            for case in op.pairs(dtype):
                task = Task(op=op, dtype=dtype, case=case, seed=request.seed, device=request.device)
                groups.setdefault(op.family, []).append(task)
    return list(groups.values())


def _run_group(tasks: list[Task], limits: _Limits, journal: Journal, folder: str) -> None:
    """Run tasks in one process, and in more when one of them ends it."""
    processes, started = 0, time.monotonic()
    heard: list[str] = []
    lost: Counter[str] = Counter()
    left = _without_those_not_for(tasks, limits.sm, journal)
    while left:
        if limits.left <= 0:
            _not_run(left, _no_time(limits), journal)
            break
        own = Journal(os.path.join(folder, "group"))
        deadline = sum(task.op.deadline for task in left) + _START_SECONDS
        work = partial(_run_tasks, left, own)
        ended = trial.run(work, deadline=min(deadline, limits.left))
        processes += 1
        heard += ended.outcome.stderr
        done = _take_over(left, own, ended.outcome, limits, journal)
        if done:
            name = left[done - 1].op.name
            left = left[done:]
            lost[name] += bool(left)
            if lost[name] == _MAX_LOST:
                rest = [task for task in left if task.op.name == name]
                _not_run(rest, f"left out: {name} ended {_MAX_LOST} processes", journal)
                left = [task for task in left if task.op.name != name]
    seconds = round(time.monotonic() - started, 3)
    said = listening.telling(heard)
    family = tasks[0].op.family
    group = Group(family=family, seconds=seconds, processes=processes, warnings=said)
    journal.write("group", group)


def _without_those_not_for(tasks: list[Task], sm: Sm | None, journal: Journal) -> list[Task]:
    """Leave out, with the reason, what the card has no instructions for."""
    kept = []
    for task in tasks:
        least = task.op.dtypes[task.dtype].min_sm
        if sm is not None and sm < Sm.parse(least):
            _not_run([task], f"{task.op.name} with {task.dtype} needs {least}", journal)
        else:
            kept.append(task)
    return kept


def _no_time(limits: _Limits) -> str:
    return f"left out: no time is left of {limits.budget:g} s"


def _not_run(tasks: Iterable[Task], why: str, journal: Journal, told: int = 0) -> None:
    """Note why tasks were not run; of each so many directions were told already."""
    outcome = Outcome(status="not-applicable", error=why)
    for task in tasks:
        for direction in task.directions[told:]:
            journal.write("run", task.run(direction, outcome))


def _run_tasks(tasks: Sequence[Task], journal: Journal) -> None:
    """Run tasks until one leaves the card unusable; runs in a child of its own."""
    for task in tasks:
        # The least that ends a call which never returns; a signal that nothing handles.
        signal.alarm(task.op.deadline)
        for run in measuring.measure(task):
            journal.write("run", run)
            if run.outcome.status == "raised" and not _usable(task.device):
                journal.write("end", None)
                return
        signal.alarm(0)
        journal.write("end", None)


def _usable(device: str) -> bool:
    try:
        measuring.synchronize(device)
    except Exception:  # noqa: BLE001 - the errors of a lost context have no type of their own
        return False
    return True


def _take_over(
    tasks: Sequence[Task], own: Journal, outcome: Outcome, limits: _Limits, journal: Journal
) -> int:
    """Note what a process left; returns how many of the tasks are done with."""
    lines = own.lines()
    with contextlib.suppress(FileNotFoundError):
        os.remove(own.path)
    for kind, value in lines:
        if kind == "run":
            journal.write("run", value)
    done = sum(kind == "end" for kind, _ in lines)
    if outcome.ok or done == len(tasks):
        return max(done, 1)
    task = tasks[done]
    kinds = [kind for kind, _ in lines[::-1]]
    told = kinds.index("end") if "end" in kinds else len(kinds)
    if limits.left <= 0:  # it was ended by the budget, as all that comes after it
        _not_run([task], _no_time(limits), journal, told)
        return done + 1
    if outcome.signal == "SIGALRM":
        seconds = task.op.deadline * 1000
        outcome = replace(outcome, status="timed-out", signal=None, milliseconds=seconds)
    for direction in task.directions[told : told + 1]:
        journal.write("run", task.run(direction, outcome))
    return done + 1
