"""Compile, probe and import for one target, with what the environment holds.

`compile_all` is the guest's side: it starts `inside.py` as a job of the environment would be
started, and takes what that left, even when it was ended. `parts` is what happens there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from envcheck.core import codec
from envcheck.core.compiled import Compiled, Outcome
from envcheck.core.request import CompileRequest
from envcheck.errors import DocumentInvalid
from envcheck.guest import assemblers, cuda_kernels, imports, kernels, trial, words
from envcheck.guest.collect import site_folders

_START_SECONDS = 60
_INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside.py")


def compile_all(control: str, request: CompileRequest) -> Compiled:
    """Do what CONTROL/request.json asks for, in another process with the environment's `site`."""
    cache = os.path.abspath(request.cache)
    try:
        os.makedirs(cache, exist_ok=True)
        # Compilers that are killed leave their temporary files.
        scratch = tempfile.mkdtemp(prefix="scratch-", dir=cache)
    except OSError as error:
        outcome = Outcome(status="raised", error=f"{type(error).__name__}: {error}")
        return Compiled(target=request.target, outcome=outcome, message=words.reason(outcome))
    try:
        outcome = _run(control, request, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    compiled = _left(control) or Compiled(target=request.target, outcome=outcome)
    return replace(compiled, outcome=outcome, message=words.reason(outcome))


def _run(control: str, request: CompileRequest, scratch: str) -> Outcome:
    """Run `inside.py`; the outcome is `ok` when it came to its end."""
    command = [sys.executable, "-B", _INSIDE, os.path.abspath(control)]
    work = trial.program(command, {**os.environ, "TMPDIR": scratch})
    outcome = trial.run(work, deadline=_patience(request)).outcome
    whole = os.path.exists(os.path.join(control, "compiled.json"))
    if outcome.status == "exited" and outcome.code == 0 and whole:
        return Outcome(status="ok", milliseconds=outcome.milliseconds)
    return outcome


def _left(control: str) -> Compiled | None:
    """Return what is known, of all parts or of those that were done."""
    for name in ("compiled.json", "compiled.json.partial"):
        file = os.path.join(control, name)
        with contextlib.suppress(FileNotFoundError, DocumentInvalid), open(file, "rb") as handle:
            return codec.loads(Compiled, handle.read(), name=name)
    return None


def _patience(request: CompileRequest) -> float:
    """Return the seconds after which even the process that watches over all others is given up."""
    each = (assemblers.PATIENCE, imports.patience(request), kernels.patience(request))
    return _START_SECONDS + sum(each) + cuda_kernels.patience(request)


def parts(request: CompileRequest, path: list[str]) -> Iterator[Compiled]:
    """Yield what is known after each part of the work; `path` is the `sys.path` of a job."""
    # Compilers work in folders of their own.
    request = replace(
        request, root=os.path.abspath(request.root), cache=os.path.abspath(request.cache)
    )
    known = Compiled(target=request.target, outcome=Outcome(status="ok"))
    known = replace(known, assemblers=assemblers.probe(request.target, site_folders(path)))
    yield known
    known = replace(known, extensions=imports.try_all(request))
    yield known
    kinds = {k.kind for k in request.kernels}
    if "triton" in kinds and _is_installed("triton"):
        known = replace(known, triton=kernels.compile_kernels(request))
        yield known
    if "cuda" in kinds:
        known = replace(known, cuda=cuda_kernels.build(request))
        yield known


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True  # something is there, and trying it will tell what is wrong with it
