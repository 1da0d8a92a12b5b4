"""Which extension modules the Python files of a package import whatever happens.

A package may hold modules that only some machines can load, and import them inside `try` or by a
name made up at run time. An import at the top of a file, outside of any `try` and `if`, is what
makes a missing library of that module a broken package. The files are parsed, never run.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from envcheck.guest.reading import open_regular

_MAX_FILES = 5000
_MAX_SOURCE = 1 << 22


def imports_at_top(folder: str, module: str) -> bool:
    """Say whether a file of the module's top package imports it at its top.

    `folder` is the site directory, `module` a dotted name. A module that is no package's is
    what users import themselves.
    """
    top, _, inside = module.partition(".")
    if not inside:
        return True
    stem = module.rpartition(".")[2]
    for path, package in _sources(os.path.join(folder, top), top):
        text = _read(path)
        if stem.encode() not in text:
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        if any(name == module for node in tree.body for name in _named(node, package)):
            return True
    return False


def _named(node: ast.stmt, package: str) -> Iterator[str]:
    """Yield what one statement at the top of a file imports, as dotted names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = package.split(".")
            parts = parts[: len(parts) - node.level + 1]
            base = ".".join([*parts, *filter(None, [base])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


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
