"""Which modules the Python files of a package import whatever happens.

A package may hold extension modules that only some machines can load, and import them inside
`try` or by a name made up at run time. An import at the left margin, outside of any block, is
what makes a missing library of that module a broken package. The files are read, never run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache

from envcheck.guest.reading import open_regular

_MAX_FILES = 5000
_MAX_SOURCE = 1 << 22
_IMPORT = re.compile(rb"^import[ \t]+([^\n#;]+)", re.MULTILINE)
_FROM = re.compile(
    rb"^from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]{0,8192}\)|[^\n#;(]+)", re.MULTILINE
)
_NAME = re.compile(r"[^\W\d]\w*")


def imports_at_top(folder: str, module: str) -> bool:
    """Say whether a file of the module's top package imports it outside of any block.

    `folder` is the site directory, `module` a dotted name. A module that is no package's is
    what users import themselves.
    """
    top, _, inside = module.partition(".")
    return not inside or module in _imported(folder, top)


@lru_cache(maxsize=32)
def _imported(folder: str, top: str) -> frozenset[str]:
    """Return what the files of a package import at the left margin, as dotted names."""
    found: set[str] = set()
    for path, package in _sources(os.path.join(folder, top), top):
        text = _read(path)
        for (names,) in map(re.Match.groups, _IMPORT.finditer(text)):
            for one in names.decode("utf-8", "replace").split(","):
                found.update(one.split()[:1])
        for dots, base, names in map(re.Match.groups, _FROM.finditer(text)):
            parts = package.split(".")
            parts = parts[: len(parts) - len(dots) + 1] if dots else []
            parts += filter(None, [base.decode("utf-8", "replace")])
            found.add(".".join(parts))
            for one in re.sub(rb"#[^\n]*", b"", names.strip(b"()")).split(b","):
                name = _NAME.search(one.decode("utf-8", "replace"))
                if name is not None:
                    found.add(".".join([*parts, name[0]]))
    return frozenset(found)


def _sources(folder: str, top: str) -> Iterator[tuple[str, str]]:
    """Yield each Python file of a package, and the package that it is in."""
    left = _MAX_FILES
    for where, folders, names in os.walk(folder):
        folders.sort()
        inner = os.path.relpath(where, folder)
        package = top if inner == "." else f"{top}." + inner.replace(os.sep, ".")
        for name in sorted(names):
            if name.endswith(".py") and left:
                left -= 1
                yield os.path.join(where, name), package


def _read(path: str) -> bytes:
    try:
        with open_regular(path) as handle:
            return handle.read(_MAX_SOURCE) or b""
    except OSError:
        return b""
