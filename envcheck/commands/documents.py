"""What commands read and write besides what they print for a person."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from envcheck.core import codec
from envcheck.core.model import Inventory
from envcheck.errors import FileUnavailable


def write(document: bytes) -> None:
    """Write JSON to stdout: always UTF-8, whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(document)


def save(options: argparse.Namespace, inventory: Inventory, name: str | None = None) -> None:
    """Write the facts where --save-inventory says, if it says so; in a folder under a name."""
    from envcheck import atomic

    path: Path | None = options.save_inventory
    if path is not None:
        path = path / f"{name}.json" if name is not None and path.is_dir() else path
        atomic.write(path, codec.dumps(inventory).encode())


def require_writable(path: Path | None) -> None:
    """Refuse a file that cannot be written, before long work; raises FileUnavailable."""
    if path is None:
        return
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        message = f"{path}: there is no folder {folder}"
        raise FileUnavailable(message, remedy=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        message = f"{path}: the folder {folder} cannot be written to"
        raise FileUnavailable(message, remedy="name a file in a folder of yours")
