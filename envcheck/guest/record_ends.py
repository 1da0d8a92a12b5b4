"""Which packages cannot be imported for want of files that their RECORD names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES

from envcheck.core.installed import End, is_aside
from envcheck.core.names import normalise, visible
from envcheck.guest import import_chain
from envcheck.guest.reading import open_regular

_SUFFIXES = (".py", *sorted(EXTENSION_SUFFIXES, key=len, reverse=True))
_BACKEND = re.compile(r"(triton/backends/\w+)/(compiler|driver)\.py")
_MAX_SOURCE = 1 << 20
_HOWS = ("missing", "empty", "syntax")


def stem(path: str) -> str | None:
    """Return the path of a module without what its kind of file ends in, None for other files."""
    if not path.endswith(_SUFFIXES):  # as most are
        return None
    return next(path[: -len(s)] for s in _SUFFIXES if path.endswith(s))


def has_other_form(where: str) -> bool:
    """Say whether a module that is gone is there as another kind of file.

    Sources are left out where bytecode lies in their place, or what Cython made of them; mypyc
    leaves them beside what it made.
    """
    base = stem(where)
    forms = (".py", ".pyc", *EXTENSION_SUFFIXES)
    return base is not None and any(os.path.isfile(base + form) for form in forms)


def is_broken_module(where: str) -> bool:
    """Say whether a file in a package is nothing that this Python reads."""
    if not where.endswith(".py"):
        return False
    if not os.path.isfile(os.path.join(os.path.dirname(where), "__init__.py")):
        return False  # a script or a template, perhaps
    try:
        import_chain.parse(where)
    except SyntaxError:
        return True
    return False


def ends(
    owner: str, folder: str, paths: Iterable[str], found: Mapping[tuple[str, str], list[str]]
) -> Iterator[End]:
    """Yield where importing one package ends, if it does; `paths` are all of its RECORD."""
    hows = {path: how for how in _HOWS for path in found.get((owner, how), ())}
    broken = {_module(base): path for path in hows if (base := stem(path)) is not None}
    # Without any of these there is nothing to follow; a healthy package ends here.
    if not broken:
        return
    roots = _roots(owner.partition(" ")[0], folder, list(paths), hows)
    result = import_chain.end(folder, roots, broken)
    if result is not None:
        module, by = result
        path = broken[module]
        yield End(owner=visible(owner), path=visible(path), how=hows[path], by=visible(by))


def optional(
    owner: str, folder: str, paths: Iterable[str], found: Mapping[tuple[str, str], list[str]]
) -> set[str]:
    """Return the broken extension modules of one package that importing it does without."""
    hows = {path: how for how in _HOWS for path in found.get((owner, how), ())}
    extensions = {p: base for p in hows if not p.endswith(".py") and (base := stem(p)) is not None}
    if not extensions:
        return set()
    roots = _roots(owner.partition(" ")[0], folder, list(paths), hows)
    tried = import_chain.tried(folder, roots, {_module(b): p for p, b in extensions.items()})
    return {path for path, base in extensions.items() if _module(base) in tried}


def _module(base: str) -> str:
    return base.removesuffix("/__init__").replace("/", ".")


def _roots(name: str, folder: str, paths: list[str], hows: Mapping[str, str]) -> list[str]:
    """Return what a distribution is imported by: its outermost packages, else its modules.

    A package that is gone as a whole, beside others that are there, was taken out on purpose,
    unless it is the one that the distribution is called after.
    """
    inner = [p for p in paths if ".dist-info/" not in p and not p.startswith(("..", "/"))]
    folders = {p.removesuffix("/__init__.py") for p in inner if p.endswith("/__init__.py")}
    outermost = sorted(f for f in folders if not is_aside(f"{f}/") and not _parents(f) & folders)
    if not outermost:
        alone = (p for p in inner if "/" not in p and not is_aside(p))
        return sorted({base for p in alone if (base := stem(p)) is not None})
    there = {p for p in inner if hows.get(p) != "missing"}
    kept = [f for f in outermost if any(p.startswith(f"{f}/") for p in there)]
    own = [f for f in outermost if normalise(f.replace("/", "-")) == name]
    roots = [f.replace("/", ".") for f in dict.fromkeys((*own, *(kept or outermost)))]
    return [*roots, *_backends(folder, inner, there)]


def _backends(folder: str, paths: list[str], there: set[str]) -> list[str]:
    """Return what Triton imports by names that its metadata has, before 3.4 by those of folders.

    Source: triton/backends/__init__.py, _discover_backends.
    """
    try:
        with open_regular(os.path.join(folder, "triton/backends/__init__.py")) as handle:
            named = b"entry_points" in (handle.read(_MAX_SOURCE) or b"")
    except (OSError, ValueError):
        return []  # no Triton, or one that has lost more than a backend
    found = ((path, _BACKEND.fullmatch(path)) for path in paths)
    kept = {p.rpartition("/")[0] for p in there}
    return [
        _module(path.removesuffix(".py"))
        for path, match in found
        if match is not None and (named or match[1] in kept)
    ]


def _parents(folder: str) -> set[str]:
    parts = folder.split("/")
    return {"/".join(parts[:n]) for n in range(1, len(parts))}
