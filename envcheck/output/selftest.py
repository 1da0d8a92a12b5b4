"""How often prediction and card agree, as a table that a Markdown page takes as it is."""

from __future__ import annotations

from collections import Counter
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from envcheck.core.agreement import AGREE, DISAGREE, Comparison
from envcheck.core.tally import Selftest, Tally
from envcheck.output.visible import visible

_STYLES = {0: "bold green", 10: "bold red", 11: "bold yellow"}


def render(found: Selftest, stream: IO[str], *, quiet: bool = False, verbose: bool = False) -> None:
    """Write the table, each disagreement on a line of its own, and one line last."""
    seen = Console(file=stream)
    width = seen.width if seen.is_terminal else 100_000
    console = Console(file=stream, highlight=False, width=width)
    if not quiet:
        with console.capture() as drawn:
            console.print(_table(found.groups))
        # Without the blank lines that stand for the table's missing borders.
        stream.writelines(f"{line}\n" for line in drawn.get().splitlines() if line.strip())
        stream.write("\n")
        for reason in _reasons(found.groups):
            console.print(Text(reason), soft_wrap=True)
    for each in found.objects:
        if each.agreement == DISAGREE or (verbose and each.agreement != AGREE):
            console.print(Text(_line(each)), soft_wrap=True)
    console.print(Text(_summary(found), style=_STYLES[found.exit_code]), soft_wrap=True)


def _table(groups: tuple[Tally, ...]) -> Table:
    table = Table(box=box.MARKDOWN, header_style="dim")
    for name in ("group", "objects", "agree", "disagree", "undecidable"):
        table.add_column(name, overflow="fold")
    rows = [(each.group, _counts(each)) for each in groups]
    totals = tuple(sum(column) for column in zip(*(counts for _, counts in rows), strict=True))
    for name, counts in [*rows, ("all", totals)]:
        table.add_row(visible(name), *map(str, counts))
    return table


def _counts(each: Tally) -> tuple[int, ...]:
    return each.count, each.agree, each.disagree, sum(each.undecidable.values())


def _reasons(groups: tuple[Tally, ...]) -> list[str]:
    """Say why something is undecidable, and of how many objects."""
    reasons: Counter[str] = Counter()
    for each in groups:
        reasons.update(each.undecidable)
    return [f"{count} undecidable: {reason}" for reason, count in reasons.most_common()]


def _line(each: Comparison) -> str:
    """Say what was predicted for one object and what happened."""
    said = f"{each.agreement}: {each.name}: predicted {each.prediction.expected}"
    why = each.reason or each.prediction.reason
    failing = {k: r for k, r in each.kernels.items() if r != "ok"}
    kernels = f" ({', '.join(failing)})" if len(each.kernels) > 1 and failing else ""
    return visible(f"{said} ({why}), the card: {each.outcome}{kernels}")


def _summary(found: Selftest) -> str:
    card = f"{found.card.name} ({found.card.sm}, driver {found.driver})"
    count, agree = len(found.objects), sum(g.agree for g in found.groups)
    bad = sum(g.disagree for g in found.groups)
    open_ = count - agree - bad
    return visible(f"{card}: {count} objects, {agree} agree, {bad} disagree, {open_} undecidable")
