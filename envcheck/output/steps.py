"""How a preflight goes, on stderr: a table that grows on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from envcheck.core.decision import TELLING
from envcheck.core.model import Finding, Status
from envcheck.output.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

_ORDER = (Status.FAIL, Status.ERROR, Status.WARN, Status.PASS)
_STYLES = {"fail": "bold red", "error": "bold magenta", "warn": "yellow", "pass": "green"}


class Shown(Protocol):
    """Who sees what is going on."""

    def begins(self, step: str) -> None:
        """A step was begun."""

    def ends(self, step: str, seconds: float, findings: Sequence[Finding]) -> None:
        """It is over; `findings` are those that were not known before, skips apart."""

    def leaves(self, step: str, why: str) -> None:
        """A step is not taken."""


class _Silent:
    def begins(self, step: str) -> None:
        pass

    def ends(self, step: str, seconds: float, findings: Sequence[Finding]) -> None:
        pass

    def leaves(self, step: str, why: str) -> None:
        pass


class _Plain(_Silent):
    """One line for each step that is over, so that a log can be read."""

    def ends(self, step: str, seconds: float, findings: Sequence[Finding]) -> None:
        status, words = _told(findings)
        _say(f"{status:5} {step:14} {seconds:5.1f} s  {words}")

    def leaves(self, step: str, why: str) -> None:
        _say(f"{'skip':5} {step:14}          {why}")


def _say(line: str) -> None:
    try:
        print(f"envcheck: {visible(line)}".rstrip(), file=sys.stderr, flush=True)
    except OSError:
        # Whoever listened is gone. The answer and the manifest have places of their own, and what
        # was paid for goes on for them.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def _told(findings: Sequence[Finding]) -> tuple[str, str]:
    """Return the worst status of a step, and what was found, the worst first."""
    if not findings:
        return "", "nothing new"
    # What decides nothing says least.
    worst = min(findings, key=lambda f: (_ORDER.index(f.status), _telling(f), not f.required))
    same = sum(f.status is worst.status for f in findings) - 1
    more = f" (and {same} more)" if same and worst.status is not Status.PASS else ""
    return worst.status.value, f"{worst.subject}: {worst.message}{more}"


def _telling(finding: Finding) -> int:
    return TELLING.index(finding.check) if finding.check in TELLING else len(TELLING)


@contextmanager
def table(*, quiet: bool) -> Iterator[Shown]:
    """Show the steps while the block runs."""
    if quiet:
        yield _Silent()
        return
    if not sys.stderr.isatty():
        yield _Plain()
        return
    from rich.console import Console
    from rich.live import Live

    grown = _Grown()
    with Live(get_renderable=grown.render, console=Console(stderr=True), refresh_per_second=8):
        yield grown


class _Grown:
    """The table: what is over, and what is going on, with the seconds that it has taken."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, float | None, str]] = []
        self._running, self._since = "", 0.0

    def begins(self, step: str) -> None:
        self._running, self._since = step, time.monotonic()

    def ends(self, step: str, seconds: float, findings: Sequence[Finding]) -> None:
        status, words = _told(findings)
        self._running = ""
        self._rows.append((status, step, seconds, words))

    def leaves(self, step: str, why: str) -> None:
        self._rows.append(("skip", step, None, why))

    def render(self) -> Table:
        """Draw it; called whenever the screen is refreshed."""
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        drawn.add_column(width=5)
        drawn.add_column(no_wrap=True)
        drawn.add_column(justify="right", no_wrap=True)
        drawn.add_column(overflow="fold")
        for status, step, seconds, words in self._rows:
            took = "" if seconds is None else f"{seconds:.1f} s"
            style = _STYLES.get(status, "dim")
            drawn.add_row(Text(status, style=style), step, took, Text(visible(words)))
        if self._running:
            took = f"{time.monotonic() - self._since:.0f} s"
            drawn.add_row(Text("...", style="dim"), self._running, took, "")
        return drawn
