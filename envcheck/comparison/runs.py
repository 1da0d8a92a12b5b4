"""Each operation, kernel and extension that ran, beside the same run elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from envcheck.core.compared import Likeness, Measure, Ran
from envcheck.core.executed import Run
from envcheck.core.model import Inventory

LOST = (Likeness.DRIFT, Likeness.INCOMPATIBLE)
COMPARED = frozenset(Likeness) - {Likeness.NOT_COMPARABLE}
_NOT_RUN = "not-applicable"

_Key = tuple[str, str, str, str, str, str, int]


def compare(before: Inventory | None, after: Inventory | None) -> tuple[Ran, ...]:
    """Compare what ran in two inventories; nothing where one of them was to run nothing."""
    old, new = _runs(before), _runs(after)
    if old is None or new is None:
        return ()
    return tuple(_pair(key, old, new) for key in {**old, **new})


def name(ran: Ran) -> str:
    """Name a run: `mm bf16 M=301 N=517 K=1111 backward`."""
    direction = "" if ran.direction == "forward" else ran.direction
    op = f"{ran.family} {ran.op}" if ran.part == "extensions" and ran.family != ran.op else ran.op
    return " ".join(part for part in (op, ran.dtype, ran.case, direction) if part)


def unseen(ran: Ran) -> bool:
    """Say whether it held in the first, and was not run in the other."""
    missing = ran.after is None or ran.after.status == _NOT_RUN
    return missing and ran.before is not None and ran.before.holds


def _runs(inventory: Inventory | None) -> dict[_Key, Run] | None:
    """Return the runs by what they are; the same twice is told apart by its number."""
    if inventory is None or inventory.executed is None:
        return None
    found: dict[_Key, Run] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for run in inventory.executed.runs:
        key = (run.part, run.family, run.op, run.dtype, run.direction, run.case)
        found[(*key, seen[key])] = run
        seen[key] += 1
    return found


def _pair(key: _Key, old: Mapping[_Key, Run], new: Mapping[_Key, Run]) -> Ran:
    before, after = old.get(key), new.get(key)
    if before is not None and after is not None:
        likeness, reason = _likeness(before, after)
    else:
        likeness = Likeness.NOT_COMPARABLE
        reason = (
            _missing(key, new, "the other") if after is None else _missing(key, old, "the first")
        )
    part, family, op, dtype, direction, case, _ = key
    return Ran(
        part=part,
        family=family,
        op=op,
        dtype=dtype,
        case=case,
        direction=direction,
        likeness=likeness,
        reason=reason,
        before=None if before is None else _measure(before),
        after=None if after is None else _measure(after),
    )


def _missing(key: _Key, runs: Mapping[_Key, Run], where: str) -> str:
    """Say why a run has nothing beside it: other sizes were run, or nothing of the kind."""
    sizes = [other[5] for other in runs if other[:5] == key[:5]]
    return f"other sizes in {where}: {sizes[0]}" if sizes else f"not in {where}"


def _likeness(before: Run, after: Run) -> tuple[Likeness, str]:
    """Say what a run is beside itself, and why.

    That one is out of its bounds does not need the operands of the other: bounds are derived
    from each one's own. That the bytes are the same does.
    """
    for run, where in ((before, "the first"), (after, "the other")):
        if run.outcome.status == _NOT_RUN:
            return (
                Likeness.NOT_COMPARABLE,
                f"not run in {where}: {run.message or 'no reason given'}",
            )
    if before.holds and not after.holds:
        kind = Likeness.DRIFT if after.outcome.ok and after.outputs else Likeness.INCOMPATIBLE
        return kind, _wrong(after)
    if after.holds and not before.holds:
        return Likeness.REPAIRED, f"in the first: {_wrong(before)}"
    if not before.holds:
        return Likeness.WRONG, _wrong(after)
    if before.seed != after.seed:
        return Likeness.NOT_COMPARABLE, f"other operands: seed {before.seed}, then {after.seed}"
    same = _bytes(before) == _bytes(after)
    return Likeness.IDENTICAL if same else Likeness.WITHIN, ""


def _bytes(run: Run) -> dict[str, tuple[str, str]]:
    return {o.output: (o.dtype, o.sha256) for o in run.outputs}


def _wrong(run: Run) -> str:
    """Say in one line what is wrong with a run that does not hold."""
    if not run.outcome.ok:
        return run.message or run.outcome.status
    bad = next((o for o in run.outputs if not o.holds), None)
    if bad is None:
        return "returned nothing to compare"
    if not bad.finite:
        return f"{bad.output} holds NaN or infinity"
    if bad.exact is False:
        return f"{bad.output} is not what it must be to the last bit"
    return f"{bad.output} is {bad.worst:.3g} times its bound"


def _measure(run: Run) -> Measure:
    worst = [o.worst for o in run.outputs if o.worst is not None]
    relative = [o.relative for o in run.outputs if o.relative is not None]
    return Measure(
        status=run.outcome.status,
        holds=run.holds,
        seed=run.seed,
        worst=max(worst, default=None),
        relative=max(relative, default=None),
        milliseconds=run.milliseconds,
        first=run.first,
        retained=run.retained,
        kernels=run.kernels if run.watched else None,
    )
