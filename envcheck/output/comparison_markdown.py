"""Comparisons as Markdown: the tables of the text, for an issue or the summary of a CI job."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.compared import Comparison, Comparisons
from envcheck.output import comparison
from envcheck.output.markdown import cell


def render(found: Comparisons, *, verbose: bool = False) -> str:
    """Return the document; every run with `verbose`, else those that are not identical."""
    lines = (row for each in found.others for row in _one(found, each, verbose=verbose))
    return "".join(f"{line}\n" for line in lines)


def _one(found: Comparisons, each: Comparison, *, verbose: bool) -> Iterator[str]:
    yield f"## {cell(comparison.heading(found, each))}"
    yield ""
    yield cell(comparison.line_of(each))
    yield ""
    for section in comparison.sections(each, verbose=verbose):
        yield f"### {section.title}"
        yield ""
        yield f"| {' | '.join(section.columns)} |"
        yield f"|{'---|' * len(section.columns)}"
        yield from (f"| {' | '.join(map(cell, row))} |" for row in section.rows)
        yield ""
    notes = [f"- {cell(note)}" for note in comparison.notes(each)]
    yield from [*notes, ""] if notes else []
