"""Modules of the environment, each imported in a fresh interpreter that does nothing else."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from dataclasses import replace

from envcheck.core.compiled import Extension, Outcome
from envcheck.core.request import CompileRequest
from envcheck.guest import trial, words
from envcheck.guest.forked import Work

_MAX_ERROR, _MAX_LINE = 4000, 300
# The file tells an exception from a module that ends its process with the same code, and a
# module that was imported from one that ends its process as if all was well.
# Extensions of PyTorch link its libraries without saying where they lie: PyTorch documents that
# `import torch` comes first, so one that lacks a library is tried once more after it.
_SCRIPT = """\
import importlib
import importlib.util
try:
    try:
        importlib.import_module({name!r})
    except ImportError as error:
        if "cannot open shared object" not in str(error) or not importlib.util.find_spec("torch"):
            raise
        importlib.import_module("torch")
        importlib.import_module({name!r})
    said = "ok"
except SystemExit:
    raise
except BaseException as error:
    said = f"{{type(error).__name__}}: {{error}}"
    raise
finally:
    if "said" in globals():
        with open({answer!r}, "w", encoding="utf-8", errors="backslashreplace") as handle:
            handle.write(said)
"""


def try_all(request: CompileRequest) -> tuple[Extension, ...]:
    """Import every module that was asked for, in children of this process."""
    if not request.imports:
        return ()
    with tempfile.TemporaryDirectory(prefix="envcheck-", ignore_cleanup_errors=True) as folder:
        answers = [os.path.join(folder, f"{n}.txt") for n in range(len(request.imports))]
        works = [_work(n, a) for n, a in zip(request.imports, answers, strict=True)]
        parallel = request.parallel or len(os.sched_getaffinity(0))
        trials = trial.run_all(works, deadline=request.import_deadline, parallel=parallel)
        return tuple(
            _extension(name, _told(ended.outcome, answer))
            for name, ended, answer in zip(request.imports, trials, answers, strict=True)
        )


def is_installed(name: str) -> bool:
    """Say whether a module is there, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True  # something is there, and trying it will tell what is wrong with it


def patience(request: CompileRequest) -> int:
    """Return the seconds after which all imports must have come to an end, one after another."""
    return len(request.imports) * request.import_deadline


def _work(name: str, answer: str) -> Work:
    """Return work that imports one module in an empty folder of its own."""
    folder = f"{answer}.cwd"
    script = _SCRIPT.format(name=name, answer=answer)
    become = trial.program([sys.executable, "-B", "-X", "faulthandler", "-c", script])

    def begin() -> object:
        os.mkdir(folder)
        os.chdir(folder)
        return become()

    return begin


def _told(outcome: Outcome, answer: str) -> Outcome:
    """Return how the import ended: what the process said of it before it ended decides."""
    if outcome.status != "exited":
        return outcome
    try:
        with open(answer, encoding="utf-8") as handle:
            said = handle.read(_MAX_ERROR)
    except FileNotFoundError:
        return outcome  # the module ended the process, and the code is its own
    if said == "ok" and outcome.code == 0:
        return Outcome(status="ok", milliseconds=outcome.milliseconds)
    if said != "ok" and outcome.code == 1:
        return replace(outcome, status="raised", code=None, error=said)
    return outcome


def _extension(name: str, imported: Outcome) -> Extension:
    message = words.reason(imported)
    if imported.error is not None:
        # What a module printed meanwhile may call something else an error.
        message = " ".join(imported.error.split())[:_MAX_LINE]
    return Extension(name=name, origin="", built=None, imported=imported, message=message)
