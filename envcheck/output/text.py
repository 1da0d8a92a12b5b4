"""Reports for a person in a terminal: a table, what needs attention, one line last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from envcheck.core.model import Finding, Report, Status, Verdict

_STYLES = {
    Status.PASS: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.SKIP: "dim",
    Status.ERROR: "bold magenta",
}
_VERDICTS = {
    Verdict.COMPATIBLE: "bold green",
    Verdict.INCOMPATIBLE: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
}
_MODES = {"native": "native", "jit": "JIT", "none": "missing"}
_FILES, _DISTRIBUTIONS = "device-code-runs-on-target", "distribution-runs-on-target"


def render(reports: Sequence[Report], stream: IO[str], *, verbosity: int) -> None:
    """Write the reports. Verbosity -1 is the verdict alone, 1 is every finding."""
    # Off a terminal nothing wraps: a table that is read by a program or a log keeps its lines.
    wide = None if stream.isatty() else 400
    console = Console(file=stream, width=wide, highlight=False)
    for report in reports:
        if verbosity >= 0:
            _render_table(console, report, verbosity)
            _render_rest(console, report, verbosity)
        line = Text(str(report.summary["line"]), style=_VERDICTS[report.verdict])
        console.print(line, soft_wrap=True)


def _render_table(console: Console, report: Report, verbosity: int) -> None:
    """Write one row for each distribution, or for each file where there are none."""
    named = [f for f in report.findings if f.check == _DISTRIBUTIONS and "mode" in f.evidence]
    rows = named or [f for f in report.findings if f.check == _FILES]
    if verbosity < 1:
        rows = [f for f in rows if f.status is not Status.SKIP] or rows[:5]
    target = report.target
    name = target.name if target.name == target.sm else f"{target.name} ({target.sm})"
    driver = f", driver {report.driver}" if report.driver else ""
    table = Table(
        title=f"{name}{driver}",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    table.add_column("package" if named else "file", overflow="fold", ratio=None)
    table.add_column("code", no_wrap=True)
    table.add_column("why", overflow="fold")
    if any(f.remedy for f in rows):
        table.add_column("remedy", overflow="fold")
    for finding in rows:
        mode = _MODES.get(str(finding.evidence.get("mode")), finding.status.value)
        if finding.status in (Status.SKIP, Status.ERROR):
            mode = finding.status.value
        cells = [Text(finding.subject), Text(mode, style=_style(finding)), Text(finding.message)]
        if len(table.columns) > 3:
            cells.append(Text(finding.remedy, style="cyan"))
        table.add_row(*cells)
    console.print(table)


def _style(finding: Finding) -> str:
    """Colour a status; what does not decide is never red."""
    if not finding.required and finding.status is Status.FAIL:
        return "yellow"
    jit = finding.status is Status.PASS and finding.evidence.get("mode") == "jit"
    return "yellow" if jit else _STYLES[finding.status]


def _render_rest(console: Console, report: Report, verbosity: int) -> None:
    """Write the findings that the table does not hold and that somebody must read."""
    tabled = (
        _DISTRIBUTIONS
        if any(f.check == _DISTRIBUTIONS and "mode" in f.evidence for f in report.findings)
        else _FILES
    )
    for finding in report.findings:
        bad = finding.status in (Status.FAIL, Status.ERROR, Status.WARN)
        if finding.check == tabled or not (verbosity > 0 or (bad and finding.required)):
            continue
        status = f"[{_STYLES[finding.status]}]{finding.status.value:5}[/]"
        console.print(
            f"{status} {escape(finding.check)}: {escape(finding.subject)}: "
            f"{escape(finding.message)}",
            soft_wrap=True,
        )
        if finding.remedy:
            console.print(f"      [cyan]{escape(finding.remedy)}[/]", soft_wrap=True)
