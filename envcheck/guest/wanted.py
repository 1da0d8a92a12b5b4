"""What a request to execute comes to: operations of all parts, the most valuable first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata

from envcheck.core.executed import Smoked
from envcheck.core.request import ExecuteRequest, Sizes
from envcheck.guest import imports, kernel_ops
from envcheck.guest.ops import catalogue
from envcheck.guest.ops.op import Case, Op
from envcheck.guest.smokes import named
from envcheck.guest.smokes.catalogue import SMOKES
from envcheck.guest.smokes.smoke import Smoke


def ops(request: ExecuteRequest) -> tuple[Op, ...]:
    """Return everything to run: first what the user named, last what takes the longest to build."""
    found: list[Op] = []
    if "extensions" in request.parts:
        found += [named.op(call) for call in request.smokes]
    if "ops" in request.parts:
        found += [with_sizes(op, request.sizes) for op in catalogue.OPS]
    kernels = kernel_ops.ops(request)
    found += [op for op in kernels if op.part == "triton"]
    if "extensions" in request.parts:
        found += [replace(op, part="extensions") for s in installed() for op in s.ops]
    found += [op for op in kernels if op.part == "cuda"]
    return tuple(found)


def smoked(request: ExecuteRequest) -> tuple[Smoked, ...]:
    """Return the extensions that have something to be tried with here."""
    if "extensions" not in request.parts:
        return ()
    mine = Counter(call.module for call in request.smokes)
    known = {s.module: s for s in installed()}
    return tuple(
        Smoked(
            module=module,
            distributions=known[module].distributions if module in known else (),
            named=module in mine,
        )
        for module in dict.fromkeys((*mine, *known))
    )


def installed() -> tuple[Smoke, ...]:
    """Return those of the catalogue whose module is in this environment."""
    return tuple(s for s in SMOKES if imports.is_installed(s.module) and _for_card(s))


def _for_card(smoke: Smoke) -> bool:
    return not smoke.on_card or any(map(_has_metadata, smoke.on_card))


def _has_metadata(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def with_sizes(op: Op, wanted: Sequence[Sizes]) -> Op:
    """Put the sizes of a job before the operation's own."""
    mine = [s for s in wanted if s.op == op.name]
    cases = tuple(Case(sizes={**s.sizes}, only=s.dtypes) for s in mine)
    return replace(op, cases=(*cases, *op.cases)) if cases else op
