"""Comparisons for a person: what is another one, each run that is not the same, one line last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from envcheck.comparison import runs
from envcheck.core.compared import Comparison, Comparisons, Likeness, Measure, Ran, Rate
from envcheck.output.drawing import drawn_to
from envcheck.output.visible import visible

_STYLES = {0: "bold green", 10: "bold red", 11: "bold yellow"}
_SHOWN = 5
"""Things that are named in a line; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Section:
    """One table; text and Markdown draw the same ones."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def render(found: Comparisons, stream: IO[str], *, verbosity: int) -> None:
    """Write the comparisons. Verbosity -1 is the last lines alone, 1 is every run."""
    with drawn_to(stream) as console:
        for each in found.others if verbosity >= 0 else ():
            console.print(Text(visible(heading(found, each)), style="bold"), soft_wrap=True)
            for section in sections(each, verbose=verbosity > 0):
                _draw(console, section)
            for line in notes(each):
                console.print(Text(visible(line), style="dim"), soft_wrap=True)
            console.print()
        for each in found.others:
            style = _STYLES[each.exit_code]
            console.print(Text(visible(line_of(each)), style=style), soft_wrap=True)


def _draw(console: Console, section: Section) -> None:
    console.print(Text(section.title, style="dim"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
    for column in section.columns:
        table.add_column(column, overflow="fold")
    for row in section.rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print(table)


def heading(found: Comparisons, each: Comparison) -> str:
    """Name both sides, and say which of them nobody vouches for."""
    sides = (found.first, each.other)
    return " -> ".join(
        f"{s.name} ({s.target or 'no report'}{'' if s.verified else ', not verified'})"
        for s in sides
    )


def line_of(each: Comparison) -> str:
    """Write the outcome in one line, with its cause."""
    name, differs = each.other.name, "" if each.differs else "; nothing differs"
    if each.lost:
        more = f" (and {len(each.lost) - 1} more)" if len(each.lost) > 1 else ""
        return f"{name}: fails what passed before: {each.lost[0]}{more}"
    if not each.compared:
        return f"{name}: nothing could be compared: {'; '.join(each.left) or 'no check looked'}"
    unseen = f"; {len(each.unseen)} that passed were not looked at" if each.unseen else ""
    return f"{name}: nothing that passed fails, of {each.compared} compared{unseen}{differs}"


def notes(each: Comparison) -> Iterator[str]:
    """Yield what could not be compared, how runs compare in numbers, and what is unseen."""
    for left in each.left:
        yield f"not compared: {left}"
    counts = Counter(r.likeness for r in each.runs)
    if counts:
        parts = (f"{counts[kind]} {kind.value}" for kind in Likeness if counts[kind])
        yield f"runs: {', '.join(parts)}"
    if each.unseen:
        more = f" (and {len(each.unseen) - _SHOWN} more)" if len(each.unseen) > _SHOWN else ""
        yield f"passed before, not looked at now: {', '.join(each.unseen[:_SHOWN])}{more}"


def sections(each: Comparison, *, verbose: bool) -> Iterator[Section]:
    """Yield the tables that have rows: what is the same is left out, without `verbose`."""
    changes = (("distributions", each.distributions), ("facts", each.facts))
    for title, rows in changes:
        yield from _section(
            title,
            ("name", "before", "after"),
            [(c.name, _word(c.before), _word(c.after)) for c in rows],
        )
    yield from _section(
        "checks",
        ("check", "subject", "before", "after", "why"),
        [
            (c.check, c.subject or "", _word(c.before), _word(c.after), c.message)
            for c in each.checks
            if verbose or c.before != c.after
        ],
    )
    yield from _section(
        "built and started",
        ("what", "before", "after", "why"),
        [(m.name, m.before, m.after, m.message) for m in each.made if m.before != m.after],
    )
    yield from _section(
        "runs",
        ("run", "is", "of bound", "ms", "kept bytes", "why"),
        [_run(r) for r in each.runs if verbose or r.likeness is not Likeness.IDENTICAL],
    )
    yield from _section("kernels", ("run", "before", "after"), list(_kernels(each.runs)))
    yield from _section(
        "measured",
        ("what", "unit", "before", "after", "change"),
        [(r.name, r.unit, _number(r.before), _number(r.after), _change(r)) for r in each.rates],
    )


def _section(
    title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> Iterator[Section]:
    if rows:
        yield Section(title, columns, tuple(rows))


def _run(ran: Ran) -> tuple[str, ...]:
    return (
        runs.name(ran),
        ran.likeness.value,
        _both(ran, "worst"),
        _both(ran, "milliseconds"),
        _both(ran, "retained"),
        ran.reason,
    )


def _kernels(rows: Sequence[Ran]) -> Iterator[tuple[str, ...]]:
    """Yield the runs for which other kernels ran, where that was looked at in both."""
    for ran in rows:
        old, new = _names(ran.before), _names(ran.after)
        if old is not None and new is not None and old != new:
            yield runs.name(ran), ", ".join(sorted(old - new)), ", ".join(sorted(new - old))


def _names(measure: Measure | None) -> frozenset[str] | None:
    return None if measure is None or measure.kernels is None else frozenset(measure.kernels)


def _both(ran: Ran, name: str) -> str:
    """Write one number of a run, before and after; empty where neither has it."""
    numbers = [None if m is None else getattr(m, name) for m in (ran.before, ran.after)]
    return "" if numbers == [None, None] else " -> ".join(map(_number, numbers))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _change(rate: Rate) -> str:
    if not rate.before or rate.after is None:
        return ""
    return f"{rate.after / rate.before - 1:+.1%}"


def _word(value: str | None) -> str:
    return "-" if value is None else value
