"""Files against RECORD just before a job starts: compiled ones quickly, or all of them by hash.

What `envcheck.guest.records` hashes is bounded, for a check has the rest of an environment to
look at; here a compiled file that may have changed is hashed whatever it costs.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envcheck.core.names import visible
from envcheck.core.present import PresentDifference
from envcheck.guest.distributions import Recorded

_BLOCK = 1 << 20
_KINDS = ("sha256", "sha384", "sha512")


class Compared(NamedTuple):
    """How many files were compared, and which differ."""

    sized: int
    hashed: int
    differing: tuple[PresentDifference, ...]


def compare(found: Iterable[Recorded], *, since: float, deep: bool) -> Compared:
    """Compare the files of distributions with their RECORD."""
    every = list(found)
    # What several packages own is as one of them at most; which, the manifest's report has judged.
    owned = Counter((one.folder, path) for one in every for path, _, _ in _chosen(one, deep=deep))
    sized = hashed = 0
    differing = []
    for one in every:
        name = f"{one.distribution.name} {one.distribution.version}"
        for path, said, length in _chosen(one, deep=deep):
            if owned[one.folder, path] > 1:
                continue
            sized += 1
            how, close = _look(os.path.join(one.folder, path), said, int(length), since, deep=deep)
            hashed += close
            if how:
                differing.append(
                    PresentDifference(owner=visible(name), path=visible(path), how=how)
                )
    return Compared(sized, hashed, tuple(differing))


def _chosen(one: Recorded, *, deep: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of files that are looked at, of those that tell a hash and a size."""
    wanted = None if deep else set(one.distribution.files)
    for row in one.rows if wanted is None or wanted else ():
        path, said, length = row
        chosen = not path.endswith(".pyc") if wanted is None else path in wanted
        if chosen and said and _is_size(length):
            yield row


def size_below(folders: Iterable[str], path: str) -> int | None:
    """Return the size of a file in the first folder that has it, None where none has."""
    places = (os.path.join(folder, path) for folder in folders)
    found = next(filter(os.path.isfile, places), None)
    return None if found is None else os.path.getsize(found)


def _is_size(text: str) -> bool:
    """Say whether it is a number, and one that int() takes: it refuses `²` and endless ones."""
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _look(where: str, said: str, length: int, since: float, *, deep: bool) -> tuple[str, bool]:
    """Return how one file differs, empty where it does not, and whether it was hashed."""
    try:
        seen = os.stat(where)
        if not stat.S_ISREG(seen.st_mode):
            return "unreadable", False
        if seen.st_size != length:
            return "size", False
        if not deep and seen.st_mtime < since:
            return "", False
        return ("" if _hash(where, said) == said else "hash"), True
    except (FileNotFoundError, NotADirectoryError):
        return "missing", False
    except (OSError, ValueError):
        return "unreadable", False


def _hash(where: str, said: str) -> str:
    """Return the hash of a file as RECORD writes it; raises OSError, ValueError for its kind."""
    kind = said.partition("=")[0]
    if kind not in _KINDS:
        raise ValueError(kind)
    total = hashlib.new(kind)
    with open(where, "rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return f"{kind}={base64.urlsafe_b64encode(total.digest()).rstrip(b'=').decode()}"
