"""The part of the guest that runs what the environment holds: run by path, as a job would be.

    python -B guest/inside.py CONTROL compile|execute

Unlike the guest it is started with `site`, so `.pth` lines, `sitecustomize` and PYTHONPATH
do what they do for a job, and the packages of the environment can be imported. It does what
`compile` or `execute` of CONTROL/request.json asks for, each piece in a process of its own,
and writes CONTROL/compiled.json or CONTROL/executed.json. What is known so far of compiling
it writes after every part into CONTROL/compiled.json.partial, which is what stays when it is
ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envcheck.core.executed import Executed
    from envcheck.core.request import Request


def main(control: str, verb: str) -> None:
    """Read the request, do the work, write what came of it."""
    here = os.path.dirname(os.path.abspath(__file__))
    # Modules of the guest have names such as `elf`, which packages may have too.
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    _load_envcheck(os.path.dirname(here))
    from envcheck.core import codec
    from envcheck.core.request import Request

    with open(os.path.join(control, "request.json"), "rb") as handle:
        request = codec.loads(Request, handle.read(), name="request")
    whole = os.path.join(control, f"{verb}d.json")
    for known in _compile(request) if verb == "compile" else _execute(request, control):
        with open(f"{whole}.new", "w", encoding="utf-8") as handle:
            handle.write(codec.dumps(known))
        os.replace(f"{whole}.new", f"{whole}.partial")
    os.replace(f"{whole}.partial", whole)


def _compile(request: Request) -> Iterator[object]:
    from envcheck.guest import trial
    from envcheck.guest.compiling import parts

    if request.compile is None:
        message = "the request asks for nothing to compile"
        raise SystemExit(message)
    if request.execute is not None:
        trial.step_back()
    yield from parts(request.compile, list(sys.path))


def _execute(request: Request, control: str) -> Iterator[Executed]:
    from envcheck.guest import wanted, workload

    if request.execute is None:
        message = "the request asks for nothing to execute"
        raise SystemExit(message)
    compiled = os.path.join(control, "compiled.json")

    def ready(seconds: float) -> None:
        until = time.monotonic() + seconds
        while request.compile is not None and time.monotonic() < until:
            if os.path.exists(compiled):
                return
            time.sleep(0.05)

    yield workload.execute(
        request.execute,
        wanted.ops(request.execute),
        smoked=wanted.smoked(request.execute),
        ready=ready,
    )


def _load_envcheck(package: str) -> None:
    """Import the bundle's envcheck, even where the environment has one that came before it.

    Only the package is named to the import system, by its path: the folder above it never
    comes onto `sys.path`, and the submodules are found through the package.
    """
    import importlib.util

    for name in [n for n in sys.modules if n.partition(".")[0] == "envcheck"]:
        del sys.modules[name]
    entry = os.path.join(package, "__init__.py")
    spec = importlib.util.spec_from_file_location(
        "envcheck", entry, submodule_search_locations=[package]
    )
    if spec is None or spec.loader is None:
        message = f"{entry} cannot be loaded"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules["envcheck"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
