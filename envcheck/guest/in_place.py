"""What a project that is installed in place (`pip install --editable`) is imported from.

Installers leave a `.pth` file that names folders, or setuptools' finder with a table of them; both
are read and not run. `site` and the finder pass over what is not there, without a word.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES

from envcheck.core.names import visible
from envcheck.guest import distributions, editable
from envcheck.guest.reading import open_regular

_MAX_PTH = 1 << 20
_TABLES = {"MAPPING", "NAMESPACES"}


def gone(entry: metadata.Distribution, folder: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return what one package in `folder` is imported from, in place, and that is not there.

    `paths` are those of its RECORD. Where none of them tells, the project's own folder counts.
    """
    project = distributions.project(entry)
    if project is None:
        return ()
    named = [path for file in paths if "/" not in file for path in _named(folder, file)]
    return tuple(sorted({visible(p) for p in named or [project] if not _is_there(p)}))


def _named(folder: str, file: str) -> Iterator[str]:
    if file.endswith(".pth"):
        for line in _lines(os.path.join(folder, file)):
            if line and not line.startswith(("#", "import ", "import\t")):
                yield os.path.join(folder, line)
    elif file.startswith("__editable__") and file.endswith("_finder.py"):
        yield from _of_tables(os.path.join(folder, file))


def _lines(where: str) -> list[str]:
    try:
        with open_regular(where) as handle:
            text = handle.read(_MAX_PTH) or b""
    except (OSError, ValueError):
        return []
    return [line.strip() for line in os.fsdecode(text).splitlines()]


def _of_tables(where: str) -> Iterator[str]:
    """Yield the paths in a finder's tables: of packages, and of modules without their suffix."""
    for table in editable.tables(where, _TABLES):
        every = (n for value in table.values for n in ast.walk(value))
        constants = (n.value for n in every if isinstance(n, ast.Constant))
        yield from (path for path in constants if isinstance(path, str))


def _is_there(path: str) -> bool:
    return any(os.path.exists(path + end) for end in ("", ".py", *EXTENSION_SUFFIXES))
