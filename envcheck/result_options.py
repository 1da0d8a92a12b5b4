"""Options of the commands that deal with results: saved looks, and what a job writes."""

from __future__ import annotations

import argparse
from pathlib import Path

from envcheck import option_values


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


def exported(add: argparse.ArgumentParser) -> None:
    """Add what `export` alone knows."""
    add.add_argument("-q", "--quiet", action="store_true", help="tell nothing but errors")
    add.add_argument(
        "--every",
        type=option_values.interval,
        required=True,
        metavar="TIME",
        help="between two exports: 90s, 30m, 2h; at least 1s",
    )
    add.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="RUNDIR",
        help="folder that the job writes its results to",
    )
    add.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="folder, or what rsync takes: HOST:PATH, rsync://HOST/PATH",
    )
    add.add_argument("words", nargs="+", metavar="CMD", help="the job and its arguments, after --")
