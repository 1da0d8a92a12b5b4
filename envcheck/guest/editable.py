"""What projects that are installed in place (`pip install --editable`) make importable.

Their folders hold more than that: earlier builds, data of tests, environments. What a build tool
wrote for imports tells what counts: a `.pth` file names a folder, which is on `sys.path` then, and
setuptools' finder maps packages to their folders. The finder is read, not run.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES

from envcheck.core.installed import is_aside
from envcheck.guest import distributions, import_chain

_FINDER = re.compile(r"__editable___\w+_finder\.py")
_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg")
# `.so` alone is what any library is called.
_MODULES = tuple(suffix for suffix in EXTENSION_SUFFIXES if suffix != ".so")

Roots = dict[str, frozenset[str] | None]
"""Folder -> the names in it that count, None for all."""


def roots(folders: list[str]) -> Roots:
    """Return the folders of `sys.path`, and those from which editable projects are imported."""
    found: Roots = {f: _importable(f) if _is_project(f) else None for f in folders}
    for folder, entry, project in _projects(folders):
        mapped = list(_mapped(folder, entry))
        for parent, name in mapped:
            known = found.setdefault(parent, frozenset())
            found[parent] = None if known is None else known | {name}
        reached = any(f == project or f.startswith(project + os.sep) for f in folders)
        if not mapped and not reached:
            # Of a tool that is not known: whatever could be imported from there.
            found.setdefault(project, _importable(project))
            source = os.path.join(project, "src")
            if os.path.isdir(source):
                found.setdefault(source, None)
    return found


def _projects(folders: Iterable[str]) -> Iterator[tuple[str, metadata.Distribution, str]]:
    for folder in folders:
        for entry in metadata.distributions(path=[folder]):
            project = distributions.project(entry)
            if project is not None and os.path.isdir(project):
                yield folder, entry, os.path.realpath(project)


def _mapped(folder: str, entry: metadata.Distribution) -> Iterator[tuple[str, str]]:
    """Yield the folder and the name there of each package that a finder of setuptools maps."""
    names = [path for path, _, _ in distributions.record_rows(entry) if _FINDER.fullmatch(path)]
    for name in names:
        for package, told in _mapping(os.path.join(folder, name)).items():
            inner, place = os.path.join(*package.split(".")), os.path.realpath(told)
            if place.endswith(os.sep + inner):
                yield place[: -len(inner) - 1], inner.partition(os.sep)[0]
            else:
                yield os.path.split(place)


def _mapping(path: str) -> dict[str, str]:
    """Return what a finder maps, nothing where it does not say so in the way that is known."""
    for table in tables(path, {"MAPPING"}):
        pairs = zip(table.keys, table.values, strict=True)
        told = ((getattr(k, "value", None), getattr(v, "value", None)) for k, v in pairs)
        return {k: v for k, v in told if k and isinstance(k, str) and isinstance(v, str)}
    return {}


def tables(path: str, names: set[str]) -> Iterator[ast.Dict]:
    """Yield those of a finder's tables that are called so, as they are written there."""
    try:
        tree = import_chain.parse(path)
    except SyntaxError:
        return
    for node in tree.body if tree is not None else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id in names:
                yield node.value


def _is_project(folder: str) -> bool:
    """Say whether a folder is the source of a project, and no place that packages are put in.

    Some packages leave their setup.py in site-packages.
    """
    try:
        packed = any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:
        return False
    if packed or os.path.basename(folder) in ("site-packages", "dist-packages"):
        return False
    return any(os.path.isfile(os.path.join(folder, name)) for name in _PROJECT)


def _importable(folder: str) -> frozenset[str]:
    """Return what in a project's folder is meant to be imported: modules, and folders of some."""
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError:
        return frozenset()
    packages = {
        e.name for e in found if e.is_dir() and _is_package(e) and not is_aside(e.name + "/")
    }
    return frozenset(packages | {e.name for e in found if not e.is_dir()})


def _is_package(entry: os.DirEntry[str]) -> bool:
    """Say whether a folder is a package, or one without `__init__` in which modules lie."""
    if not entry.name.isidentifier():
        return False
    try:
        with os.scandir(entry.path) as inside:
            names = {e.name: e.is_dir() for e in inside}
    except OSError:
        return True  # to be told that it cannot be read
    begins = os.path.join("{}", "__init__.py")
    return (
        "__init__.py" in names
        or any(name.endswith(_MODULES) for name in names)
        or any(
            is_dir and os.path.isfile(os.path.join(entry.path, begins.format(name)))
            for name, is_dir in names.items()
        )
    )
