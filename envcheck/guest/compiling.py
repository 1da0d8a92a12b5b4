"""Compile, probe and import for one target, with what the environment holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from envcheck.core.compiled import Compiled, Outcome
from envcheck.core.request import CompileRequest
from envcheck.guest import assemblers, cuda_kernels, imports, kernels
from envcheck.guest.site_paths import site_folders

_START_SECONDS = 60


def patience(request: CompileRequest) -> float:
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
    if "triton" in kinds and imports.is_installed("triton"):
        known = replace(known, triton=kernels.compile_kernels(request))
        yield known
    if "cuda" in kinds:
        known = replace(known, cuda=cuda_kernels.build(request))
        yield known
