"""What glibc's loader would load, in its own order, worked out without loading anything.

The order is that of `_dl_map_object` (glibc, elf/dl-load.c): what is loaded under that name or
soname already; RPATH of the file that asks and of all that had it loaded, unless it has a
RUNPATH; LD_LIBRARY_PATH; RUNPATH; /etc/ld.so.cache; the default folders. In each folder those
of glibc-hwcaps come first. Files of another class or machine are passed over; other broken
ones end the load. Dependencies are loaded breadth first (elf/dl-deps.c).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from envcheck.guest.linked_files import LinkedFile, LinkedFiles
from envcheck.guest.loader_system import System

# Nothing real comes near; a hostile tree of needed names does.
_MAX_LOADED = 4096


@dataclass(slots=True, eq=False)
class Loaded:
    """One file that a process has mapped."""

    path: str
    """As the loader found it, links and `..` unresolved: `$ORIGIN` is its folder."""
    file: LinkedFile
    loader: Loaded | None
    """What asked for it first."""
    how: str
    """`LD_PRELOAD`, `RPATH`, `LD_LIBRARY_PATH`, `RUNPATH`, `ld.so.cache`, `default folder` or `path`."""
    needs: list[Loaded | None] = field(default_factory=list)
    """What each needed name came to, in order; None for what was not found."""
    names: set[str] = field(default_factory=set)
    """Under which it is known: soname and what was asked for."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file at which the loader ends, instead of looking further."""

    path: str
    how: str
    problem: str
    behind: str | None
    """What it would have come to next."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A needed name that nothing was found for."""

    name: str
    by: Loaded
    reason: str
    """Empty where there is no file; else why the one that was found cannot be loaded."""
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """What loading one file came to."""

    root: Loaded | None
    """None where it cannot be loaded itself."""
    scope: tuple[Loaded, ...] = ()
    """It and all that it needs, breadth first: where its symbols are looked up."""
    new: tuple[Loaded, ...] = ()
    """What was not loaded before."""
    missed: tuple[Missed, ...] = ()
    reason: str = ""
    refusal: Refusal | None = None
    """Where it is a file that ended it."""


class Process:
    """The maps of one process; `fork` gives one in which to try something out."""

    def __init__(self, system: System, files: LinkedFiles) -> None:
        self.system, self.files = system, files
        self.maps: list[Loaded] = []
        self.names: dict[str, Loaded] = {}
        self.globals: list[Loaded] = []
        self.caller: Loaded | None = None
        """Where dlopen is called from: the interpreter, or its shared library."""
        self.passed_over: dict[str, str] = {}
        """What LD_PRELOAD names and the loader ignores -> why."""

    def fork(self) -> Process:
        """Return a process with the same maps, whose own loads leave this one alone."""
        other = Process(self.system, self.files)
        other.maps, other.names = list(self.maps), dict(self.names)
        other.globals, other.caller = list(self.globals), self.caller
        return other

    def adopt(self, other: Process) -> None:
        """Take over what a fork has come to."""
        self.maps, self.names, self.globals = other.maps, other.names, other.globals

    def start(self, program: str) -> Opening:
        """Load a program as the kernel and the loader do; its symbols are seen by all.

        What is preloaded is mapped before what the program needs, and searched before that. One
        that cannot be mapped is ignored.
        """
        main, _, _ = self._map(program, None)
        preloaded = [one for name in self.system.preloads if (one := self._preload(name, main))]
        opening = self.open(program, to_all=True)
        if opening.root is not None:
            # Python's own code is in its shared library, where it has one.
            self.caller = next(
                (m for m in opening.scope if m.file.symbols.exports_any(b"PyImport_Import")),
                opening.root,
            )
        for one in preloaded:
            self.open(one.path, to_all=True)
        first = [main, *preloaded] if main is not None else preloaded
        held = set(map(id, first))
        self.globals = first + [one for one in self.globals if id(one) not in held]
        return opening

    def _preload(self, name: str, main: Loaded | None) -> Loaded | None:
        found, reason, _ = self._map(name, main)
        if found is None:
            self.passed_over[name] = reason or "no such file on the loader's path"
        elif found is not main:
            found.how = "LD_PRELOAD"
        return found if found is not main else None

    def open(self, name: str, *, to_all: bool = False, caller: Loaded | None = None) -> Opening:
        """Load a file by name or path and all that it needs, as dlopen does."""
        before = len(self.maps)
        asker = caller or self.caller
        root, reason, refusal = self._map(name, asker)
        if root is None:
            reason = reason or "no such file on the loader's path"
            return Opening(None, reason=reason, refusal=refusal)
        missed: list[Missed] = []
        scope = [root]
        for loaded in scope:
            if len(loaded.needs) != len(loaded.file.dynamic.needed):
                loaded.needs = list(self._dependencies(loaded, missed))
            known = set(map(id, scope))
            scope += _unknown(loaded.needs, known)
        opening = Opening(root, tuple(scope), tuple(self.maps[before:]), tuple(missed))
        if to_all:
            held = set(map(id, self.globals))
            self.globals += [loaded for loaded in scope if id(loaded) not in held]
        return opening

    def _dependencies(self, loaded: Loaded, missed: list[Missed]) -> Iterator[Loaded | None]:
        for name in loaded.file.dynamic.needed:
            found, reason, refusal = self._map(name, loaded)
            if found is None:
                missed.append(Missed(name, loaded, reason, refusal))
            yield found

    def _map(self, name: str, asker: Loaded | None) -> tuple[Loaded | None, str, Refusal | None]:
        """Return what a name comes to, mapped now if it was not; and why not."""
        known = self.names.get(name)
        if known is not None:
            return known, "", None
        if len(self.maps) >= _MAX_LOADED:
            return None, "more libraries than a process could hold", None
        tried = self.candidates(name, asker)
        for path, how in tried:
            file = self.files.read(path)
            if file is None or not self._is_taken(file):
                continue
            if file.problem:
                whole = (p for p, _ in tried if (f := self.files.read(p)) and not f.problem)
                refusal = Refusal(path, how, file.problem, next(whole, None))
                return None, f"{path}: {file.problem}", refusal
            return self._add(path, file, name, asker, how), "", None
        return None, "", None

    def _is_taken(self, file: LinkedFile) -> bool:
        """Say whether the loader ends its search at a file, for better or worse."""
        return (file.machine, file.bits) in ((self.system.machine, self.system.bits), (0, 0))

    def _add(
        self, path: str, file: LinkedFile, name: str, asker: Loaded | None, how: str
    ) -> Loaded:
        """Take a file in, unless it is there under another name."""
        loaded = next((m for m in self.maps if m.file.identity == file.identity), None)
        if loaded is None:
            loaded = Loaded(path, file, asker, how)
            self.maps.append(loaded)
        for known in (name, file.dynamic.soname, path):
            if known:
                loaded.names.add(known)
                self.names.setdefault(known, loaded)
        return loaded

    def candidates(self, name: str, asker: Loaded | None) -> Iterator[tuple[str, str]]:
        """Yield the paths that the loader would try for a name, and what has it try them."""
        if "/" in name:
            yield self._expand(name, asker), "path"
            return
        dynamic = asker.file.dynamic if asker is not None else None
        if dynamic is None or dynamic.runpath is None:
            for one in _askers(asker, self.maps):
                for folder in self._folders(one.file.dynamic.rpath, one):
                    yield from ((path, "RPATH") for path in self._in(folder, name))
        for folder in self.system.library_path:
            yield from (
                (path, "LD_LIBRARY_PATH") for path in self._in(self._expand(folder, None), name)
            )
        if asker is not None and dynamic is not None:
            for folder in self._folders(dynamic.runpath, asker):
                yield from ((path, "RUNPATH") for path in self._in(folder, name))
        no_default = dynamic is not None and dynamic.no_default
        cached = self.cached(name)
        if cached is not None and not (no_default and self._is_default(cached)):
            yield cached, "ld.so.cache"
        if not no_default:
            for folder in self.system.folders:
                yield from ((path, "default folder") for path in self._in(folder, name))

    def cached(self, name: str) -> str | None:
        """Return what /etc/ld.so.cache has for a name on this processor."""
        levels = self.system.hwcaps
        best: tuple[int, str] | None = None
        for entry in self.system.cache.get(name, ()):
            if entry.flags != self.system.flags:
                continue
            if entry.hwcaps is not None and entry.hwcaps not in levels:
                continue
            rank = len(levels) if entry.hwcaps is None else levels.index(entry.hwcaps)
            if best is None or rank < best[0]:
                best = rank, entry.path
        return best[1] if best is not None else None

    def _is_default(self, path: str) -> bool:
        return os.path.dirname(path) in {folder.rstrip("/") for folder in self.system.folders}

    def _in(self, folder: str, name: str) -> Iterator[str]:
        folder = folder.rstrip("/") or "/"
        capable = os.path.join(folder, "glibc-hwcaps")
        if self.system.hwcaps and self.files.is_folder(capable):
            for level in self.system.hwcaps:
                yield os.path.join(capable, level, name)
        if self.files.is_folder(folder):
            yield os.path.join(folder, name)

    def _folders(self, text: str | None, owner: Loaded) -> Iterator[str]:
        for entry in text.split(":") if text else ():
            yield self._expand(entry or ".", owner)

    def _expand(self, text: str, owner: Loaded | None) -> str:
        """Replace `$ORIGIN`, `$LIB` and `$PLATFORM`."""
        if "$" not in text:
            return text
        main = self.maps[0] if self.maps else None
        origin = owner or main
        values = {
            "ORIGIN": os.path.dirname(origin.path) if origin is not None else "",
            "LIB": self.system.lib,
            "PLATFORM": self.system.platform,
        }
        for key, value in values.items():
            text = text.replace("${" + key + "}", value).replace("$" + key, value)
        return text


def _unknown(needs: list[Loaded | None], known: set[int]) -> Iterator[Loaded]:
    for need in needs:
        if need is not None and id(need) not in known:
            known.add(id(need))
            yield need


def _askers(asker: Loaded | None, maps: list[Loaded]) -> Iterator[Loaded]:
    """Yield what asks, what had that loaded, and so on; at last the program."""
    seen: set[int] = set()
    main = maps[0] if maps else None
    for one in (*_chain(asker), main):
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one


def _chain(one: Loaded | None) -> Iterator[Loaded]:
    while one is not None:
        yield one
        one = one.loader
