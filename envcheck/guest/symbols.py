"""Symbol closure: what the libraries that a load maps leave unresolved, and what came closest.

Python opens extension modules with RTLD_NOW, and so does ctypes: one symbol that nothing in
scope exports is an ImportError, whether or not it is ever called. The scope is what all see
(the program, what was opened for all) and the file that was opened with all that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from envcheck.guest.dynamic import VersionNeed
from envcheck.guest.dynamic_symbols import Wanted, gnu_hash
from envcheck.guest.linked_files import Identity
from envcheck.guest.loader import Loaded, Opening, Process

_MAX_NEAR = 8
# _Z, for tables and type information TV TI TS TT, then a nested name of which only the
# components are followed: what is between I and E are template arguments.
_NESTED = re.compile(rb"_Z(?:T[VTIS])?N[rVKRO]*")
_PLAIN = re.compile(rb"_Z(\d+)")
_SUBSTITUTION = re.compile(rb"S(?:[tabsiod]|[0-9A-Z]*_)")


@dataclass(frozen=True, slots=True)
class Lacking:
    """One symbol that is not resolved."""

    wanted: Wanted
    by: Loaded
    near: bytes | None = None
    near_in: Loaded | None = None
    """Where the near name is, or the copy of the library that the version is wanted of."""


class Closure:
    """Looks symbols up, and remembers which libraries are complete by themselves."""

    def __init__(self) -> None:
        self._complete: set[tuple[Identity, frozenset[Identity]]] = set()
        self.looked_up = 0

    def unresolved(self, process: Process, opening: Opening) -> list[Lacking]:
        """Return what the files that an opening has newly mapped leave unresolved."""
        found: list[Lacking] = []
        for loaded in opening.new:
            own = _with_needs(loaded)
            key = (loaded.file.identity, frozenset(one.file.identity for one in own))
            if key in self._complete:
                continue
            left = self._missing(loaded, [*own, *process.globals])
            if not left:
                self._complete.add(key)
                continue
            left = self._missing(loaded, opening.scope, left)
            if left:
                # The loader looks up only what a relocation names.
                real = loaded.file.symbols.relocated({wanted.index for wanted in left})
                found += [
                    Lacking(wanted, loaded, near_in=process.names.get(wanted.file or ""))
                    for wanted in left
                    if wanted.index in real
                ]
        return found

    def _missing(
        self, loaded: Loaded, scope: Iterable[Loaded], wanted: Iterable[Wanted] | None = None
    ) -> list[Wanted]:
        every = [one.file.symbols for one in scope]
        by_name = {name: one.file.symbols for one in scope for name in one.names}
        left = []
        last = None
        for want in loaded.file.symbols.wanted() if wanted is None else wanted:
            if want.weak:
                continue
            self.looked_up += 1
            value = gnu_hash(want.name)
            hinted = by_name.get(want.file) if want.file is not None else last
            if hinted is not None and hinted.exports(want.name, want.version, value):
                continue
            for symbols in every:
                if symbols is not hinted and symbols.exports(want.name, want.version, value):
                    last = symbols
                    break
            else:
                left.append(want)
        return left


def missing_versions(
    process: Process, opening: Opening
) -> Iterator[tuple[VersionNeed, Loaded, Loaded]]:
    """Yield versions that are not defined, who needs them, and the copy that lacks them.

    A library without any versions serves all (elf/dl-version.c only warns of it).
    """
    for loaded in opening.new:
        for need in loaded.file.dynamic.needs:
            found = process.names.get(need.file)
            if found is None or need.weak or not found.file.dynamic.versioned:
                continue
            if need.name not in found.file.dynamic.definitions.values():
                yield need, loaded, found


def add_near(lacking: list[Lacking], libraries: Iterable[Loaded]) -> list[Lacking]:
    """Say for the first of them which library has the same name with other arguments."""
    searched = list(libraries)
    return [_nearest(one, searched) for one in lacking[:_MAX_NEAR]] + lacking[_MAX_NEAR:]


def _nearest(lacking: Lacking, libraries: list[Loaded]) -> Lacking:
    wanted = lacking.wanted
    prefix = qualified(wanted.name)
    for library in libraries if prefix else ():
        if library is lacking.by:
            continue
        names = library.file.symbols.beginning_with(prefix)
        if names:
            return Lacking(wanted, lacking.by, _closest(wanted.name, names), library)
    for library in libraries:
        # The same name, of another version.
        if wanted.version is not None and library.file.symbols.exports_any(wanted.name):
            return Lacking(wanted, lacking.by, wanted.name, library)
    if lacking.near_in is None and not prefix:
        namesake = max(libraries, key=lambda one: _named_after(wanted.name, one), default=None)
        if namesake is not None and _named_after(wanted.name, namesake):
            return Lacking(wanted, lacking.by, None, namesake)
    return lacking


def _named_after(name: bytes, library: Loaded) -> int:
    """Return how much of a C name is the library's: `ncclCommRegister` is libnccl's."""
    stem = (library.file.dynamic.soname or "").partition(".so")[0].removeprefix("lib").lower()
    same = name.decode("utf-8", "replace").lower().lstrip("_").startswith(stem)
    return len(stem) if same and len(stem) > 3 else 0


def _closest(name: bytes, names: list[bytes]) -> bytes:
    """Return the name that shares the longest beginning, then the end."""

    def shared(other: bytes) -> tuple[int, int]:
        pairs = zip(name, other, strict=False)
        ahead = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(name), len(other)))
        return ahead, -abs(len(name) - len(other))

    return max(names, key=shared)


def qualified(name: bytes) -> bytes:
    """Return the beginning of a mangled name that says what it is, without its arguments.

    Empty for C names and for templates, whose arguments this does not follow.
    """
    nested = _NESTED.match(name)
    if nested is None:
        plain = _PLAIN.match(name)
        if plain is None:
            return b""
        end = plain.end() + int(plain[1][:4])
        return name[:end] if end < len(name) else b""
    at = nested.end()
    while at < len(name):
        if name[at : at + 1] == b"E":
            return name[: at + 1]
        step = _component(name, at)
        if not step:
            return b""
        at = step
    return b""


def _component(name: bytes, at: int) -> int:
    """Return where the component of a nested name ends, 0 where it is none that is followed."""
    digits = re.compile(rb"\d{1,4}").match(name, at)
    if digits:
        return digits.end() + int(digits[0])
    substitution = _SUBSTITUTION.match(name, at)
    if substitution:
        return substitution.end()
    if name[at : at + 2] in (b"C1", b"C2", b"C3", b"D0", b"D1", b"D2"):
        return at + 2
    # Operators, such as `ls` and `eq`.
    return at + 2 if re.compile(rb"[a-z][a-zA-Z]").match(name, at) else 0


def _with_needs(loaded: Loaded) -> list[Loaded]:
    """Return a file and all that it needs, breadth first."""
    found = [loaded]
    seen = {id(loaded)}
    for one in found:
        for need in one.needs:
            if need is not None and id(need) not in seen:
                seen.add(id(need))
                found.append(need)
    return found
