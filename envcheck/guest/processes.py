"""Tasks in one process, and in more when one of them ends it.

A task that crashes, exits, hangs or leaves the card unusable ends its process and costs one
run; what was to come after it goes on in the next process. Results go through a file, line by
line, so that none is lost with the process that made it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread

from envcheck.core.compiled import Outcome
from envcheck.core.executed import LEFT_OUT, Group
from envcheck.core.sm import Sm
from envcheck.guest import listening, measuring, memory, trial, words
from envcheck.guest.ahead import Ahead
from envcheck.guest.journal import Journal
from envcheck.guest.measuring import Task
from envcheck.guest.spent import Spent

START_SECONDS = 30
_MAX_LOST = 3
"""Processes that one operation may end before the rest of it is left out."""
_MAX_THREADS = 1
"""For references, which are small: threads would wait for each other while others compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop, and what the card can do."""

    until: float
    budget: float
    sm: Sm | None

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.monotonic()


@dataclass(slots=True)
class _Costs:
    """What the processes of some tasks cost, by family."""

    seconds: Counter[str] = field(default_factory=Counter)
    processes: Counter[str] = field(default_factory=Counter)
    heard: dict[str, list[str]] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)


def run(
    tasks: Sequence[Task],
    limits: Limits,
    journal: Journal,
    folder: str,
    meanwhile: Thread,
    ahead: Ahead | None = None,
) -> None:
    """Run tasks; `meanwhile` is started once they are under way, and waited for by the caller.

    `ahead` is a process that waits to run them.
    """
    costs, lost = _Costs(), Counter[str]()
    left = fitting(tasks, limits.sm)
    _not_for(tasks, limits.sm, journal)
    while left:
        if limits.left <= 0:
            _not_run(left, _no_time(limits), journal)
            break
        if meanwhile.is_alive():
            meanwhile.join()  # a fork would keep the locks that an import holds, for ever
        own, started = Journal(os.path.join(folder, "own")), time.monotonic()
        deadline = min(sum(task.op.deadline for task in left) + START_SECONDS, limits.left)
        if ahead is not None:
            own = ahead.journal
            if meanwhile.ident is None:
                meanwhile.start()
            ended, ahead = ahead.take_turn(deadline), None
        else:
            work = partial(run_tasks, left, own)
            ended = trial.run(work, deadline=deadline, meanwhile=meanwhile)
        done = _take_over(left, own, ended.outcome, limits, journal)
        _count(left[:done], own, time.monotonic() - started, costs)
        name = left[done - 1].op.name
        left = left[done:]
        lost[name] += bool(left)
        if lost[name] == _MAX_LOST:
            rest = [task for task in left if task.op.name == name]
            _not_run(rest, f"{LEFT_OUT}{name} ended {_MAX_LOST} processes", journal)
            left = [task for task in left if task.op.name != name]
    for family, processes in costs.processes.items():
        seconds = round(costs.seconds[family], 3)
        said = words.distinct(costs.heard.get(family, ()))
        group = Group(family=family, seconds=seconds, processes=processes, warnings=said)
        journal.write("group", group)
    journal.write("spent", costs.spent.rounded())


def fitting(tasks: Sequence[Task], sm: Sm | None) -> Sequence[Task]:
    """Return the tasks that the card has instructions for."""
    return [t for t in tasks if sm is None or sm >= Sm.parse(t.op.dtypes[t.dtype].min_sm)]


def _not_for(tasks: Sequence[Task], sm: Sm | None, journal: Journal) -> None:
    """Tell the reason for what the card has no instructions for."""
    for task in tasks:
        least = task.op.dtypes[task.dtype].min_sm
        if sm is not None and sm < Sm.parse(least):
            _not_run([task], f"{task.op.name} with {task.dtype} needs {least}", journal)


def _no_time(limits: Limits) -> str:
    return f"{LEFT_OUT}no time is left of {limits.budget:g} s"


def _not_run(tasks: Iterable[Task], why: str, journal: Journal, told: int = 0) -> None:
    """Note why tasks were not run; of each so many directions were told already."""
    outcome = Outcome(status="not-applicable", error=why)
    for task in tasks:
        for direction in task.directions[told:]:
            journal.write("run", task.run(direction, outcome))


def run_tasks(tasks: Sequence[Task], journal: Journal) -> None:
    """Run tasks until one leaves the card unusable; runs in a child of its own."""
    gc.freeze()  # torch's own objects are hundreds of thousands; what a call leaves is few
    measuring.start(tasks[0].device, threads=_MAX_THREADS)
    for task in tasks:
        spent, started, usable = Spent(), time.monotonic(), True
        # The least that ends a call which never returns; a signal that nothing handles.
        signal.alarm(task.op.deadline)
        with listening.to_stderr(journal.path + ".stderr") as said:
            for run in measuring.measure(task, spent):
                journal.write("run", run)
                usable = run.outcome.status != "raised" or _usable(task.device)
                if not usable:
                    break
        signal.alarm(0)
        seconds = time.monotonic() - started
        journal.write("end", {"seconds": seconds, "spent": spent.seconds, "said": said})
        if not usable:
            return


def _usable(device: str) -> bool:
    try:
        memory.synchronize(device)
    except Exception:  # noqa: BLE001 - the errors of a lost context have no type of their own
        return False
    return True


def _take_over(
    tasks: Sequence[Task], own: Journal, outcome: Outcome, limits: Limits, journal: Journal
) -> int:
    """Note what a process left; returns how many of the tasks are done with."""
    lines = own.lines()
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
    outcome = replace(outcome, stderr=(*outcome.stderr, *listening.left_in(own.path + ".stderr")))
    for direction in task.directions[told : told + 1]:
        journal.write("run", task.run(direction, outcome))
    return done + 1


def _count(tasks: Sequence[Task], own: Journal, seconds: float, costs: _Costs) -> None:
    """Count what a process cost that ran these tasks, and remove what it left."""
    ends = [value for kind, value in own.lines() if kind == "end"]
    for name in (own.path, own.path + ".stderr"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(name)
    for task, end in zip(tasks, ends, strict=False):
        costs.seconds[task.op.family] += end["seconds"]
        costs.heard.setdefault(task.op.family, []).extend(end["said"])
        costs.spent.seconds.update(end["spent"])
    beside = seconds - sum(end["seconds"] for end in ends)
    if len(ends) < len(tasks):  # the last one took the rest of it
        costs.seconds[tasks[-1].op.family] += beside
    else:
        costs.spent.seconds["processes"] += beside
    costs.processes.update({task.op.family for task in tasks})
