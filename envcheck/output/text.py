"""Reports for a person in a terminal: rows to read at a glance, what to do, one line last."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from envcheck.core.model import Finding, Report, Status, Verdict
from envcheck.output.drawing import drawn_to
from envcheck.output.visible import visible

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
_BAD = (Status.FAIL, Status.ERROR, Status.WARN)
_FILES, _PACKAGES = "device-code-runs-on-target", "distribution-runs-on-target"
# As many rows without trouble as still leave the ones with trouble on the screen.
_MANY = 20
_CODE = 7
"""Width of `missing`, the longest word of the first column."""

_Group = tuple[str, list[tuple[str, Finding]]]
"""A heading, and what stands below it: each finding under the name that it gets there."""


def render(reports: Sequence[Report], stream: IO[str], *, verbosity: int) -> None:
    """Write the reports. Verbosity -1 is the verdict alone, 1 is every finding."""
    with drawn_to(stream) as console:
        for report in reports if verbosity >= 0 else ():
            _render_report(console, report, verbose=verbosity > 0)
            console.print()
        for report in reports:
            line = visible(str(report.summary["line"]))
            console.print(Text(line, style=_VERDICTS[report.verdict]), soft_wrap=True)


def decisions(reports: Sequence[Report]) -> Iterator[str]:
    """Yield what to do with the machine, where one was looked at."""
    for report in reports:
        decision = report.summary.get("decision")
        if isinstance(decision, Mapping):
            yield visible(f"{decision['word']}: {'; '.join(decision['facts'])}")


def _render_report(console: Console, report: Report, *, verbose: bool) -> None:
    target = report.target
    name = target.name if target.name == target.sm else f"{target.name} ({target.sm})"
    title = f"{name}, driver {report.driver}" if report.driver else name
    console.print(Text(title, style="bold"))
    tabled, hidden = _tabled(report, verbose=verbose)
    groups = [*tabled, *_others(report, verbose=verbose)]
    remedies: dict[str, int] = {}
    # Names get a column of their own, but not at the cost of the reasons beside it.
    longest = max((len(visible(name)) for _, rows in groups for name, _ in rows), default=0)
    width = min(longest, max(20, console.width * 2 // 5))
    label = "package" if _table_of(report) == _PACKAGES else "file"
    console.print(Text(f"{'code':{_CODE}}  {label:{width}}  why", style="dim"))
    for heading, rows in groups:
        if heading:
            console.print(Text(visible(heading), style="dim"), soft_wrap=True)
        console.print(_table(rows, width, remedies, fold=verbose))
        if (heading, rows) == tabled[-1] and hidden:
            console.print(f"{'native':{_CODE}}  {hidden} more (-v shows them)", style="green")
    for line in _executed(report):
        console.print(Text(visible(line)), soft_wrap=True)
    for remedy, number in remedies.items():
        # Not wrapped: a command is there to be copied.
        console.print(
            Text.assemble((f"{f'[{number}]':>{_CODE}}  ", "bold"), (visible(remedy), "cyan")),
            soft_wrap=True,
        )


def _executed(report: Report) -> Iterator[str]:
    """Yield what ran on the card, in numbers."""
    done = report.summary.get("executed")
    if not isinstance(done, Mapping):
        return
    runs, spent = done["runs"], done["seconds_of_runs"]
    parts = [f"{part} {runs[part]} in {spent[part]:.1f} s" for part in runs if runs[part]]
    total = f"{done['seconds']:.1f} s of {done['budget']:g} s"
    yield f"run on {done['card']}: {', '.join(parts) or 'nothing'}; {total}"
    spent = sorted(done["spent"].items(), key=lambda pair: -pair[1])
    if spent:
        yield "spent on " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent)
    if done["left_out"]:
        yield f"{done['left_out']} runs were left out: a larger --budget runs them"


def _tabled(report: Report, *, verbose: bool) -> tuple[list[_Group], int]:
    """Return the rows of packages or files, under the archive they are in, and how many are hidden.

    Packages where an environment was looked at, files elsewhere.
    """
    check = _table_of(report)
    found = [f for f in report.findings if f.check == check and not f.evidence.get("not_asked")]
    hidden = 0
    if not verbose:
        found = [f for f in found if f.status is not Status.SKIP] or found[:_MANY]
        native = [f for f in found if _is_native(f)]
        if len(native) > _MANY:
            found = [f for f in found if not _is_native(f)]
            hidden = len(native)
    folder = _common_folder(found)
    groups: dict[str, list[tuple[str, Finding]]] = {}
    for finding in found:
        archive, inside, name = finding.subject.rpartition("!/")
        under = folder if not inside and name.startswith(folder) else archive + inside
        groups.setdefault(under, []).append((finding.subject.removeprefix(under), finding))
    return [*groups.items()] or [("", [])], hidden


def _common_folder(findings: list[Finding]) -> str:
    """Return the folder that all plain files share, with its final slash, empty for none."""
    plain = [f.subject for f in findings if "!/" not in f.subject]
    try:
        shared = os.path.commonpath([os.path.dirname(path) for path in plain])
    except ValueError:  # none, or absolute beside relative ones
        return ""
    return f"{shared.rstrip('/')}/" if len(plain) > 1 and shared else ""


def _table_of(report: Report) -> str:
    packages = any(f.check == _PACKAGES and "mode" in f.evidence for f in report.findings)
    return _PACKAGES if packages else _FILES


def _is_native(finding: Finding) -> bool:
    return finding.status is Status.PASS and finding.evidence.get("mode") == "native"


def _others(report: Report, *, verbose: bool) -> list[_Group]:
    """Return what the other checks found and somebody must read, under the check's name."""
    tabled = _table_of(report)
    told = set() if verbose else _files_of_packages(report)
    groups: dict[str, list[tuple[str, Finding]]] = {}
    for finding in report.findings:
        matters = verbose or (finding.required and finding.status in _BAD)
        again = finding.check == _FILES and finding.subject in told
        if finding.check != tabled and matters and not again:
            groups.setdefault(finding.check, []).append((finding.subject, finding))
    return list(groups.items())


def _files_of_packages(report: Report) -> set[str]:
    """Return the files that the row of a package speaks for, with the same remedy."""
    told: set[str] = set()
    for finding in report.findings:
        if finding.check == _PACKAGES and isinstance(
            by_mode := finding.evidence.get("files"), dict
        ):
            told.update(path for paths in by_mode.values() for path in paths)
    return told


def _table(
    rows: list[tuple[str, Finding]], width: int, remedies: dict[str, int], *, fold: bool
) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(width=_CODE, no_wrap=True)
    table.add_column(width=width, overflow="fold")
    table.add_column(overflow="fold")
    short = {name: _shorten(visible(name), width) for name, _ in rows}
    # What tells two names apart is not cut off.
    alike = [cut for cut, count in Counter(short.values()).items() if count > 1]
    for name, finding in rows:
        whole = fold or short[name] in alike
        why = Text(visible(finding.message))
        if finding.remedy and finding.required:
            number = remedies.setdefault(finding.remedy, len(remedies) + 1)
            why.append(f" [{number}]", style="bold")
        table.add_row(
            Text(_word(finding), style=_style(finding)),
            Text(visible(name) if whole else short[name]),
            why,
        )
    return table


def _shorten(path: str, width: int) -> str:
    """Drop folders from the front of a path until it fits."""
    if len(path) <= width:
        return path
    end = path[-(width - 1) :]
    return "…" + end[max(0, end.find(os.sep)) :]


def _word(finding: Finding) -> str:
    mode = _MODES.get(str(finding.evidence.get("mode")))
    return (
        finding.status.value
        if finding.status in (Status.SKIP, Status.ERROR)
        else mode or finding.status.value
    )


def _style(finding: Finding) -> str:
    """Colour a status; what does not decide is never red."""
    if not finding.required and finding.status is Status.FAIL:
        return "yellow"
    jit = finding.status is Status.PASS and finding.evidence.get("mode") == "jit"
    return "yellow" if jit else _STYLES[finding.status]
