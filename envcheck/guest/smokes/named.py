"""A function that the user named, called as an operation: it raises when something is wrong."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from envcheck.core.request import SmokeCall
from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensors, dims
from envcheck.guest.ops.rules import exactly
from envcheck.guest.ops.torches import held, torch

SECONDS = 120
"""For all calls of one function: what it builds or compiles at first is included."""


def op(smoke: SmokeCall) -> Op:
    """Return the operation; its one output says that the function returned, and not False."""

    def call(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
        returned = _function(smoke)()
        # Moved and not computed there, so that all kernels that run are the function's own.
        claim = torch().tensor([int(returned is not False)], dtype=torch().int32)
        return {"returned": claim.to(operands["_place"].device)}

    return Op(
        name=f"{os.path.basename(smoke.place)}:{smoke.function}",
        family=smoke.module,
        part="extensions",
        dtypes=exactly("fp32"),
        cases=(Case(sizes=dims()),),
        inputs=_place,
        call=call,
        reference=_returned,
        watched=True,
        deadline=SECONDS,
    )


def _place(case: Case, draw: Operands) -> Tensors:  # noqa: ARG001 - as every op's
    return {"_place": draw.values(1)}


def _returned(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    return {"returned": held()}


@cache
def _function(smoke: SmokeCall) -> Callable[[], Any]:
    """Import what the user named; raises what that raises."""
    found: Any = _module(smoke.place)
    for name in smoke.function.split("."):
        found = getattr(found, name)
    if not callable(found):
        message = f"{smoke.function} of {smoke.place} cannot be called"
        raise TypeError(message)
    return found  # type: ignore[no-any-return]


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    name = f"envcheck_smoke_{os.path.basename(place)[:-3]}"
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        message = f"{place} cannot be loaded"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
