"""What a manifest must say for a job to start: `[guard]` of the settings, below the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from envcheck.core.model import Assurance
from envcheck.errors import UsageError

if TYPE_CHECKING:
    from envcheck.core.model import Target
    from envcheck.toml_table import Table

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 10 * 365 * 86400
# Those of envcheck.config, which takes longer to import than all else here.
_FILES = ("envcheck.toml", "pyproject.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one gate; the fields are the keys of the settings."""

    keys: tuple[tuple[str, Path], ...] = ()
    """Name and file of each public key that may have signed."""
    require: Assurance = Assurance.SCANNED
    """The least assurance."""
    checks: tuple[str, ...] = ()
    """Checks that must have said something, and nothing but pass or warn."""
    warns: tuple[str, ...] | None = None
    """Checks that may warn; None lets all of them."""
    max_age: float | None = None
    """Seconds; None for no limit."""
    target: Target | None = None
    """The target that the manifest must be about; None for any."""


def load(path: Path | None, folder: Path) -> Policy:
    """Read `[guard]` of `path` (`--config`), or of what `folder` has; raises UsageError.

    Nothing else of the file is looked at but the names of its keys: locks and folders that
    building needs are rarely there where a job starts.
    """
    # A link to nothing is no absence of rules: reading it says what is wrong.
    there = ((folder / name) for name in _FILES)
    if path is None and not any(file.is_file() or file.is_symlink() for file in there):
        return Policy()
    from envcheck import config

    settings, _ = config.find(path, folder)
    table = None if settings is None else settings.table("guard")
    return Policy() if table is None else read(table)


def read(table: Table) -> Policy:
    """Read one table; raises UsageError that names file, key and remedy."""
    from envcheck import config

    table.require_known(f.name for f in fields(Policy))
    return Policy(
        keys=tuple(_key(row) for row in table.tables("keys")),
        require=config.assurance(table),
        checks=table.texts("checks"),
        warns=table.texts("warns") if "warns" in table.data else None,
        max_age=_max_age(table),
        target=_target(table),
    )


def age(text: str) -> float:
    """Return the seconds of `90s`, `30m`, `24h` or `7d`; raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", text.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST:
        message = f"{text!r} is no age such as 30m, 24h or 7d"
        raise ValueError(message)
    return float(seconds)


def _key(row: Table) -> tuple[str, Path]:
    row.require_known(("name", "path"))
    name, path = row.text("name"), row.existing_file("path")
    if name is None or path is None:
        lacking = "name" if name is None else "path"
        row.refuse(lacking, "missing", remedy='{ name = "ci", path = "ci.pub" }')
    return name, path


def _max_age(table: Table) -> float | None:
    text = table.text("max_age")
    if text is None:
        return None
    try:
        return age(text)
    except ValueError as error:
        table.refuse("max_age", str(error), remedy='max_age = "24h"')


def _target(table: Table) -> Target | None:
    from envcheck import targets

    name = table.text("target")
    if name is None:
        return None
    try:
        return targets.resolve(name)
    except UsageError as error:
        table.refuse("target", error.message, remedy=error.remedy.removeprefix("--arch "))
