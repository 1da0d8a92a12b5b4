"""Reports as Markdown: for an issue, a chat, or the summary of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from envcheck.core.model import Finding, Report, Status
from envcheck.output.visible import visible

# With entities, and what GitHub adds: struck out text, formulas, addresses that become links.
_MARKUP = re.compile(r"[\\|<>*_`\[\]&~$]|:(?=//)|(?<=\bwww)\.", re.IGNORECASE)
_WORTH_A_ROW = (Status.FAIL, Status.ERROR, Status.WARN)


def render(reports: Sequence[Report], *, verbose: bool = False) -> str:
    """Return the document; every finding with `verbose`, else those that want something done."""
    return "\n".join(line for report in reports for line in _report(report, verbose=verbose))


def _report(report: Report, *, verbose: bool) -> Iterator[str]:
    target = report.target
    yield f"## {cell(target.card or target.name)} ({target.sm}): {report.verdict.value}"
    yield ""
    yield cell(str(report.summary["line"]))
    yield ""
    decision = report.summary.get("decision")
    if isinstance(decision, Mapping):
        facts = decision["facts"]
        yield f"**{decision['word']}**: {cell('; '.join(facts))}"
        yield ""
    found = [f.status for f in report.findings]
    counts = ", ".join(f"{found.count(status)} {status.value}" for status in Status)
    yield f"Assurance {report.assurance.value}; {counts}."
    yield ""
    rows = [f for f in report.findings if verbose or f.status in _WORTH_A_ROW]
    if rows:
        yield "| status | check | subject | what | remedy |"
        yield "|---|---|---|---|---|"
        yield from map(_row, rows)
        yield ""


def _row(finding: Finding) -> str:
    remedy = _code(finding.remedy) if finding.remedy else ""
    cells = (finding.status.value, finding.check, cell(finding.subject), cell(finding.message))
    return f"| {' | '.join(cells)} | {remedy} |"


def cell(text: str) -> str:
    """Return text that can neither end a cell nor become markup or a link."""
    return _MARKUP.sub(r"\\\g<0>", visible(" ".join(text.split())))


def _code(text: str) -> str:
    """Return a command to be copied; only a table's own bar needs an escape there.

    What encloses it is longer than any row of backticks in it (CommonMark, "Code spans").
    """
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{visible(text)}{space}{fence}".replace("|", r"\|")
