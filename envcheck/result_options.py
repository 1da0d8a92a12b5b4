"""Options of the commands that deal with saved results."""

from __future__ import annotations

import argparse
from pathlib import Path


def compared(add: argparse.ArgumentParser) -> None:
    """Add what `compare` alone knows."""
    add.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="manifests, saved inventories or reports; each is compared with the first",
    )
    add.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="KEY.pub",
        help="public key that may have signed the manifests; may be repeated; without it nothing"
        " is verified",
    )
