"""The known architectures and cards as tables."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.table import Table

from envcheck.targets import Catalogue


def render(known: Catalogue, stream: IO[str]) -> None:
    """Write both tables."""
    console = Console(file=stream, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("architecture", "sm", "shared memory per block"):
        table.add_column(name)
    for row in known.architectures:
        table.add_row(row.name, row.sm, f"{row.shared_memory_per_block} B")
    console.print(table)
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("card", "architecture", "memory", "product"):
        table.add_column(name)
    for card in known.cards:
        memory = "" if card.memory_gb is None else f"{card.memory_gb} GB"
        table.add_row(card.name, card.architecture, memory, card.title)
    console.print(table)
