"""A progress bar for long work, on a terminal's stderr and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """What the pipeline tells of its progress."""

    def announce(self, total: int) -> None:
        """Say how many bytes there are to read."""

    def step(self, name: str, size: int) -> None:
        """Say which file is read next, and its bytes."""


class _Silent:
    def announce(self, total: int) -> None:
        pass

    def step(self, name: str, size: int) -> None:
        pass


@contextmanager
def bar(*, quiet: bool) -> Iterator[Bar]:
    """Show a bar while the block runs, if somebody is there to see it."""
    if quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        BarColumn(20),
        DownloadColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        class _Shown:
            last = 0

            def announce(self, total: int) -> None:
                progress.update(task, total=total)

            def step(self, name: str, size: int) -> None:
                progress.update(task, advance=self.last, description=name[-60:])
                self.last = size

        yield _Shown()
