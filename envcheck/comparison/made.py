"""What was compiled, built, imported and started, beside the same elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.core.compared import Made
from envcheck.core.compiled import Compiled, Outcome
from envcheck.core.model import Inventory

_NOT_TRIED = "not-applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """All that was tried in both, and what worked in the first and was not tried again."""

    rows: tuple[Made, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _End:
    """How one thing ended that was tried, and the line that says why it failed."""

    name: str
    status: str
    message: str

    @property
    def ok(self) -> bool:
        return self.status == "ok"


def compare(before: Inventory | None, after: Inventory | None) -> Built:
    """Compare how things ended; nothing where one of the two has no facts."""
    if before is None or after is None:
        return Built()
    old, new = {e.name: e for e in _ends(before)}, {e.name: e for e in _ends(after)}
    return Built(
        rows=tuple(_row(end, new[name]) for name, end in old.items() if name in new),
        unseen=tuple(name for name, end in old.items() if end.ok and name not in new),
    )


def _row(before: _End, after: _End) -> Made:
    return Made(
        name=before.name,
        before=before.status,
        after=after.status,
        message="" if after.ok else after.message or after.status,
        lost=before.ok and not after.ok,
    )


def _ends(inventory: Inventory) -> Iterator[_End]:
    """Yield everything that was tried: what had to start before anything else could, first."""
    executed = inventory.executed
    if executed is not None:
        yield from _tried("starting what runs on the card", executed.outcome, executed.message)
    if inventory.compiled is not None:
        yield from _compiled(inventory.compiled)


def _compiled(compiled: Compiled) -> Iterator[_End]:
    yield from _tried("compiling", compiled.outcome, compiled.message)
    triton, cuda = compiled.triton, compiled.cuda
    if triton is not None:
        yield from _tried("starting Triton", triton.outcome, triton.message)
        for one in triton.compilations:
            name = f"compiling {one.kernel}.{one.function} {one.dtype} {one.config}".rstrip()
            yield from _tried(name, one.outcome, one.message)
    if cuda is not None:
        yield from _tried("starting the build of CUDA kernels", cuda.outcome, cuda.message)
        for built in cuda.kernels:
            yield from _tried(f"building kernel {built.kernel}", built.outcome, built.message)
    for each in compiled.extensions:
        if each.built is not None:
            said = each.said[-1] if each.said else ""
            yield _End(f"building {each.name}", "ok" if each.built else "failed", said)
        if each.imported is not None:
            yield from _tried(f"importing {each.name}", each.imported, each.message)


def _tried(name: str, end: Outcome, message: str) -> Iterator[_End]:
    if end.status != _NOT_TRIED:
        yield _End(name, end.status, message or end.error or "")
