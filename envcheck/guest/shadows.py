"""What an import takes from a folder of `sys.path` that comes before the installed package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.machinery import all_suffixes

from envcheck.core.installed import Shadow, is_aside
from envcheck.core.names import visible
from envcheck.guest.records import Owned


def imported(folder: str, name: str) -> str | None:
    """Return the file that importing a name from a folder begins with, None where it goes on.

    A folder without a first file does not end the search.
    """
    inside = os.path.join(folder, name)
    begins = [os.path.join(inside, "__init__"), inside]
    suffixes = all_suffixes()
    return next((b + s for b in begins for s in suffixes if os.path.isfile(b + s)), None)


def shadows(folders: list[str], owned: list[list[Owned]]) -> Iterator[Shadow]:
    """Yield the modules of installed packages that something nobody installed comes before."""
    for place in range(1, len(folders)):
        for one in owned[place]:
            for name in sorted(_names(one)):
                path = _first(folders[:place], owned, one, name)
                if path is not None:
                    yield Shadow(owner=visible(one.name), module=visible(name), path=visible(path))


def _names(one: Owned) -> set[str]:
    tops = {path.partition("/")[0] for path, _, _ in one.rows if not is_aside(path)}
    return {name for top in tops if (name := top.removesuffix(".py")).isidentifier()}


def _first(folders: list[str], owned: list[list[Owned]], one: Owned, name: str) -> str | None:
    """Return what the first folder has of a name that has it, if no package there owns that.

    Another installation of the same package may have no RECORD.
    """
    package = one.name.partition(" ")[0]
    for folder, here in zip(folders, owned, strict=False):
        path = imported(folder, name)
        if path is not None:
            inner = os.path.relpath(path, folder)
            same = any(other.name.partition(" ")[0] == package for other in here)
            known = same or any(inner == row[0] for other in here for row in other.rows)
            return None if known else path
    return None
