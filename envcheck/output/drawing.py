"""What is drawn for a person goes to a stream at once, as wide as that stream shows it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rich.console import Console


@contextmanager
def drawn_to(stream: IO[str]) -> Iterator[Console]:
    """Give a console whose lines are written when the block is over, without trailing blanks."""
    seen = Console(file=stream)
    drawn = io.StringIO()
    yield Console(
        file=drawn,
        # Off a terminal nothing wraps: what a program or a log reads keeps its lines.
        width=seen.width if seen.is_terminal else 100_000,
        highlight=False,
        force_terminal=seen.is_terminal,
        no_color=seen.no_color,
    )
    stream.writelines(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines())
