"""What a request wants done with what the environment holds, started as a job would be.

Each verb is a process of `inside.py` with the environment's `site`. Where something is run on a
card it is compiled for at the same time, behind it, and the environment is looked at meanwhile:
a rental is paid by the minute.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Thread
from typing import TypeVar

from envcheck.core import codec
from envcheck.core.compiled import Compiled, Outcome
from envcheck.core.executed import Executed
from envcheck.core.request import Collected, ExecuteRequest, Request
from envcheck.core.variables import SCRATCH
from envcheck.errors import DocumentInvalid
from envcheck.guest import compiling, trial, words, workload
from envcheck.guest.later import Later

_T = TypeVar("_T")
_INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside.py")


def work(control: str, request: Request, look: Callable[[], Collected]) -> Collected:
    """Do what CONTROL/request.json asks for, and look meanwhile; returns all that came of it."""
    deadlines = {}
    if request.compile is not None:
        deadlines["compile"] = compiling.patience(request.compile)
    if request.execute is not None:
        deadlines["execute"] = workload.patience(request.execute)
    caches = [r.cache for r in (request.compile, request.execute) if r is not None and r.cache]
    cache = os.path.abspath(caches[0]) if caches else None
    try:
        if cache is not None:
            os.makedirs(cache, exist_ok=True)
        # Compilers that are killed leave their temporary files.
        scratch = tempfile.mkdtemp(prefix="scratch-", dir=cache)
    except OSError as error:
        outcome = Outcome(status="raised", error=f"{type(error).__name__}: {error}")
        return _added(look(), request, control, dict.fromkeys(deadlines, outcome))
    looking = Later(look)
    try:
        outcomes = _run(control, deadlines, scratch, looking)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _added(looking.value(), request, control, outcomes)


def _run(
    control: str, deadlines: dict[str, float], scratch: str, meanwhile: Thread
) -> dict[str, Outcome]:
    """Run `inside.py` for each verb; an outcome is `ok` when it came to its end."""
    command = [sys.executable, "-B", _INSIDE, os.path.abspath(control)]
    variables = {**os.environ, **_folders(os.environ.get(SCRATCH)), "TMPDIR": scratch}
    works = [trial.program([*command, verb], variables) for verb in deadlines]
    deadline = max(deadlines.values())
    trials = trial.run_all(works, deadline=deadline, parallel=len(works), meanwhile=meanwhile)
    return {
        verb: _ended(ended.outcome, os.path.join(control, f"{verb}d.json"))
        for verb, ended in zip(deadlines, trials, strict=True)
    }


def _folders(place: str | None) -> dict[str, str]:
    """Return the variables of folders that are written to, where those of a job cannot be."""
    if place is None:
        return {}
    return {
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(place, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(place, "triton"),
        "XDG_CACHE_HOME": os.path.join(place, "cache"),
    }


def _ended(outcome: Outcome, whole: str) -> Outcome:
    if outcome.status == "exited" and outcome.code == 0 and os.path.exists(whole):
        return Outcome(status="ok", milliseconds=outcome.milliseconds)
    return outcome


def _added(
    seen: Collected, request: Request, control: str, outcomes: dict[str, Outcome]
) -> Collected:
    compiled, executed = seen.compiled, seen.executed
    if request.compile is not None:
        outcome = outcomes["compile"]
        left = _left(Compiled, control, "compiled.json")
        compiled = left or Compiled(target=request.compile.target, outcome=outcome)
        compiled = replace(compiled, outcome=outcome, message=words.reason(outcome))
    if request.execute is not None:
        outcome = outcomes["execute"]
        executed = _left(Executed, control, "executed.json") or _nothing(request.execute, outcome)
        executed = replace(executed, cards=seen.cards)
    return replace(seen, compiled=compiled, executed=executed)


def _nothing(request: ExecuteRequest, outcome: Outcome) -> Executed:
    return Executed(
        outcome=outcome,
        message=words.reason(outcome),
        parts=request.parts,
        budget=float(request.budget),
        card=None,
        torch=None,
    )


def _left(kind: type[_T], control: str, whole: str) -> _T | None:
    """Return what is known, of all parts or of those that were done."""
    names: Iterable[str] = (whole, f"{whole}.partial")
    for name in names:
        file = os.path.join(control, name)
        with contextlib.suppress(FileNotFoundError, DocumentInvalid), open(file, "rb") as handle:
            return codec.loads(kind, handle.read(), name=name)
    return None
