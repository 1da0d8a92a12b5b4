"""A progress bar for long work, on a terminal's stderr and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """What the pipeline tells of its progress."""

    shown: bool
    """False when nobody sees it, and a total need not be found out."""

    def announce(self, total: int) -> None:
        """Say how many bytes there are to read."""

    def step(self, name: str, done: int) -> None:
        """Say which file is being read, and how many bytes are done with it."""


class _Silent:
    shown = False

    def announce(self, total: int) -> None:
        pass

    def step(self, name: str, done: int) -> None:
        pass


@contextmanager
def bar(*, quiet: bool) -> Iterator[Bar]:
    """Show a bar while the block runs, if somebody is there to see it."""
    if quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    from rich.table import Column

    from envcheck.output.visible import visible

    name_column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns = (
        BarColumn(20),
        DownloadColumn(),
        TextColumn("{task.description}", markup=False, table_column=name_column),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task("", total=None)

        class _Shown:
            shown = True

            def announce(self, total: int) -> None:
                progress.update(task, total=total)

            def step(self, name: str, done: int) -> None:
                text = visible(name.rpartition("!/")[2].rpartition("/")[2])
                progress.update(task, advance=done, description=text)

        yield _Shown()
