"""Put one saved look beside others: pure, so the same files give the same answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envcheck.comparison import checks, facts, made, runs
from envcheck.core.compared import Change, Comparison, Comparisons, Rate, Saved, Side
from envcheck.core.model import Target


def compare(first: Saved, others: Sequence[Saved]) -> Comparisons:
    """Compare each of the others with the first."""
    return Comparisons(first=_side(first), others=tuple(_compare(first, one) for one in others))


def _side(saved: Saved) -> Side:
    report = saved.report
    return Side(
        name=saved.name,
        verified=saved.verified,
        finished=saved.finished,
        target=None if report is None else _target(report.target),
        verdict=None if report is None else report.verdict.value,
        assurance=None if report is None else report.assurance.value,
    )


def _target(target: Target) -> str:
    return target.name if target.name == target.sm else f"{target.name} ({target.sm})"


def _compare(first: Saved, other: Saved) -> Comparison:
    before, after = first.inventory, other.inventory
    judged = checks.compare(first.report, other.report)
    ran = runs.compare(before, after)
    built = made.compare(before, after)
    return Comparison(
        other=_side(other),
        distributions=_changes(facts.distributions(before), facts.distributions(after)),
        facts=tuple(
            change
            for group in facts.GROUPS
            for change in _changes(group.read(before), group.read(after))
        ),
        checks=judged.rows,
        runs=ran,
        made=built.rows,
        rates=_rates(facts.rates(before), facts.rates(after)),
        left=(
            *_left(first, other),
            *(f"{fails} fails, and {first.name} does not name it" for fails in judged.unpaired),
        ),
        compared=judged.seen + sum(r.likeness in runs.COMPARED for r in ran) + len(built.rows),
        unseen=(*judged.unseen, *map(runs.name, filter(runs.unseen, ran)), *built.unseen),
        lost=(
            *checks.lost(judged.rows),
            *(f"{runs.name(r)}: {r.reason}" for r in ran if r.likeness in runs.LOST),
            *(f"{m.name}: {m.message}" for m in built.rows if m.lost),
        ),
    )


def _left(first: Saved, other: Saved) -> Iterator[str]:
    """Yield what only one of the two, or neither, can tell, and why."""
    sides = (first, other)
    without = [s.name for s in sides if s.report is None]
    if without:
        yield f"checks: {' and '.join(without)} holds no report"
    for group in facts.GROUPS:
        known = [s for s in sides if group.read(s.inventory) is not None]
        if len(known) == 1:
            (unknown,) = (s for s in sides if s is not known[0])
            yield f"{group.name}: not in {unknown.name}"
        elif not known and group.always:
            yield f"{group.name}: in neither"


def _changes(
    before: Mapping[str, str | None] | None, after: Mapping[str, str | None] | None
) -> tuple[Change, ...]:
    """Return what is not the same; nothing where one of the two says nothing at all."""
    if before is None or after is None:
        return ()
    return tuple(
        Change(name=name, before=before.get(name), after=after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _rates(
    before: Mapping[tuple[str, str], float], after: Mapping[tuple[str, str], float]
) -> tuple[Rate, ...]:
    return tuple(
        Rate(name=name, unit=unit, before=before.get((name, unit)), after=after.get((name, unit)))
        for name, unit in {**before, **after}
    )
