"""Files against RECORD: who owns them, and whether they are as they were installed.

All sizes are compared, because that costs one `stat` a file. Hashes are compared where they are
cheap: of compiled files and of METADATA up to HASH_BOUND bytes, HASH_TOTAL bytes in all.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import os
import re
import stat
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from envcheck.core.installed import Differing, Foreign, Overlap, Records, is_aside, is_vital
from envcheck.core.names import visible
from envcheck.guest import record_ends
from envcheck.guest.distributions import is_compiled

HASH_BOUND = 1 << 20
HASH_TOTAL = 48 << 20
_SHOWN = 12
# What differs is read only where its size does, which is rare; patched trees have some hundred.
_MAX_PARSED = 1000
_METADATA = ".dist-info/METADATA"
_EXTENSION = re.compile(r"(?P<stem>[^./]+)(?P<suffix>\.(?:cpython|pypy|graalpy)[\w-]*\.so)$")

Row = tuple[str, str, str]
"""Path, hash and size of one line of RECORD."""


@dataclass(frozen=True)
class Owned:
    """What one package says is its own."""

    name: str
    """`torch 2.14.1`."""
    folder: str
    rows: list[Row]

    def absolute(self, path: str) -> str:
        """Return where a path of RECORD lies."""
        return os.path.normpath(os.path.join(self.folder, path))


def first(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the first of some paths, compiled ones before others."""
    every = heapq.nsmallest(_SHOWN, paths, key=lambda p: (not is_compiled(p), p))
    return tuple(map(visible, every))


def _repeated(here: list[Owned]) -> set[str]:
    """Return the paths that stand in a RECORD more than once, or in several."""
    once: set[str] = set()
    again: set[str] = set()
    for one in here:
        for path, _, _ in one.rows:
            (again if path in once else once).add(path)
    return again


def overlaps(here: list[Owned]) -> Iterator[Overlap]:
    """Yield what packages of one site directory own in common, by who owns it."""
    owners: dict[str, list[tuple[Owned, Row]]] = {}
    shared = _repeated(here)
    for one in here if shared else ():
        for row in one.rows:
            # A directory's own notes are nobody else's, and a row without a hash tells nothing.
            if row[0] in shared and row[1] and ".dist-info/" not in row[0]:
                owners.setdefault(row[0], []).append((one, row))
    groups: dict[tuple[str, ...], dict[str, list[tuple[Owned, Row]]]] = defaultdict(dict)
    for path, both in owners.items():
        names = tuple(sorted({one.name for one, _ in both}))
        if len(names) > 1:
            groups[names][path] = both
    for names, paths in sorted(groups.items()):
        differing = {p: both for p, both in paths.items() if len({r[1] for _, r in both}) > 1}
        held: dict[str, int] = {}
        for both in differing.values():
            for name in _held(both):
                held[name] = held.get(name, 0) + 1
        yield Overlap(
            owners=names,
            identical=len(paths) - len(differing),
            differing=len(differing),
            compiled=sum(map(is_compiled, differing)),
            paths=first(differing),
            held=held,
        )


def _held(both: list[tuple[Owned, Row]]) -> Iterator[str]:
    """Yield whose content is on disk: by size where that tells, else by hash where cheap."""
    where = both[0][0].absolute(both[0][1][0])
    size = _size(where)
    if not isinstance(size, int):
        return
    fitting = [(one, row) for one, row in both if row[2] == str(size)]
    if len({row[1] for _, row in fitting}) > 1:
        found = _hash(where, fitting[0][1][1]) if size <= HASH_BOUND else None
        fitting = [(one, row) for one, row in fitting if row[1] == found]
    yield from (one.name for one, _ in fitting)


def _telling(paths: Iterable[str], optional: Collection[str]) -> tuple[str, ...]:
    """Return the first of some paths that differ, those that say most before others."""

    def rank(path: str) -> tuple[bool, bool, bool, bool, str]:
        notes, compiled = path.endswith(_METADATA), is_compiled(path)
        vital = is_vital(path) and path not in optional
        return is_aside(path), not notes, not vital, not compiled, path

    return tuple(map(visible, heapq.nsmallest(_SHOWN, paths, key=rank)))


def compare(places: list[list[Owned]]) -> Records:
    """Compare the files of all packages with what their RECORD says."""
    sized = hashed = spent = parsed = 0
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    of: dict[str, int] = {}
    for here in places:
        shared = _repeated(here)
        for one in here:
            of[one.name] = sum(_is_inside(path) for path, _, _ in one.rows)
            for path, said, length in one.rows:
                # What several packages own is as one of them at most; that is told elsewhere.
                if not said or not _is_size(length) or path in shared:
                    continue
                where = f"{one.folder}/{path}" if path[0] not in "./" else one.absolute(path)
                size = _size(where)
                sized += 1
                if isinstance(size, str):
                    other = size == "missing" and record_ends.has_other_form(where)
                    found[one.name, "form" if other else size].append(path)
                elif size != int(length):
                    parsed += 1
                    broken = parsed < _MAX_PARSED and record_ends.is_broken_module(where)
                    how = ("syntax" if broken else "size") if size else "empty"
                    found[one.name, how].append(path)
                elif size <= HASH_BOUND and spent + size <= HASH_TOTAL and _worth(path):
                    hashed += 1
                    spent += size
                    if _hash(where, said) not in (said, None):
                        found[one.name, "hash"].append(path)
    every = [one for here in places for one in here]
    without = {
        one.name: record_ends.optional(one.name, one.folder, (r[0] for r in one.rows), found)
        for one in every
    }
    differing = tuple(
        Differing(
            owner=visible(owner),
            how=how,
            compiled=sum(map(is_compiled, paths)),
            code=sum(path.endswith(".py") for path in paths),
            count=len(paths),
            of=of[owner],
            paths=_telling(paths, without[owner]),
            optional=first(without[owner].intersection(paths)),
        )
        for (owner, how), paths in sorted(found.items())
    )
    ends = (
        end
        for one in every
        for end in record_ends.ends(one.name, one.folder, (r[0] for r in one.rows), found)
    )
    return Records(
        sized=sized,
        hashed=hashed,
        hash_bound=HASH_BOUND,
        differing=differing,
        ends=tuple(ends),
    )


def _is_inside(path: str) -> bool:
    return ".dist-info/" not in path and not path.startswith(("..", "/"))


def _is_size(text: str) -> bool:
    """Say whether it is a number, and one that int() takes: it refuses `²` and endless ones."""
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _worth(path: str) -> bool:
    return is_compiled(path) or path.endswith(_METADATA)


def _size(where: str) -> int | str:
    """Return the size of a file, or in a word why there is none."""
    try:
        seen = os.stat(where)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, ValueError):
        return "unreadable"
    return seen.st_size if stat.S_ISREG(seen.st_mode) else "unreadable"


def _hash(where: str, said: str) -> str | None:
    """Return the hash of a file as RECORD writes it, None where it cannot be had."""
    kind = said.partition("=")[0]
    if kind not in ("sha256", "sha384", "sha512"):
        return None
    try:
        with open(where, "rb") as file:
            digest = hashlib.new(kind, file.read(HASH_BOUND + 1)).digest()
    except (OSError, ValueError):
        return None
    return f"{kind}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def foreign(every: list[Owned], suffixes: tuple[str, ...]) -> Iterator[Foreign]:
    """Yield the extension modules of which the interpreter can load no file at all."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in every:
        modules: dict[str, list[tuple[str, str]]] = defaultdict(list)
        loaded = set()
        for path, _, _ in one.rows:
            if path.endswith(".so"):
                folder, _, name = path.rpartition("/")
                loaded |= {f"{folder}/{name[: -len(s)]}" for s in suffixes if name.endswith(s)}
                if match := _EXTENSION.search(name):
                    modules[f"{folder}/{match['stem']}"].append((match["suffix"], path))
        for module, files in modules.items():
            if module not in loaded:
                for suffix, path in files:
                    groups[one.name, suffix].append(path)
    for (owner, suffix), paths in sorted(groups.items()):
        yield Foreign(
            owner=visible(owner), suffix=visible(suffix), count=len(paths), paths=first(paths)
        )
