"""The files that a loader comes across, each opened once and mapped, whatever it turns out to be."""

from __future__ import annotations

import mmap
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from envcheck.guest import dynamic
from envcheck.guest.dynamic import Dynamic
from envcheck.guest.dynamic_symbols import Symbols
from envcheck.guest.elf import MAGIC, Malformed
from envcheck.guest.reading import open_regular

_HEADER = 64
_MANY = 256

Identity = tuple[int, int]
"""Device and inode: two names of one file are one library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedFile:
    """One file as the loader sees it."""

    identity: Identity
    real: str
    """Without links."""
    dynamic: Dynamic
    symbols: Symbols
    machine: int = 0
    """As this machine reads it, whatever the byte order of the file: so does the loader."""
    bits: int = 0
    """0 for what is no ELF at all, -1 for one of no class that there is."""
    problem: str = ""
    """Why the loader refuses it; the rest is empty then."""
    blank: bool = False
    """Whether it begins with zeros, as no file does that anybody wrote."""


class LinkedFiles:
    """Opens files for the loader and remembers them; `close` lets go of them."""

    def __init__(self) -> None:
        self._by_path: dict[str, LinkedFile | None] = {}
        self._by_identity: dict[Identity, LinkedFile] = {}
        self._folders: dict[str, bool] = {}
        self._views: dict[Identity, mmap.mmap] = {}

    def is_folder(self, path: str) -> bool:
        """Say whether there is such a folder; asked once."""
        if path not in self._folders:
            self._folders[path] = os.path.isdir(path)
        return self._folders[path]

    def read(self, path: str) -> LinkedFile | None:
        """Return a file, None where there is none to open; never raises for what it holds."""
        if path not in self._by_path:
            self._by_path[path] = self._read(path)
        return self._by_path[path]

    def _read(self, path: str) -> LinkedFile | None:
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        identity = (found.st_dev, found.st_ino)
        if stat.S_ISDIR(found.st_mode):
            # Opened and read like a file, as what an engine makes where a mount has no source.
            return _refused(identity, os.path.realpath(path), "cannot read file data")
        if not stat.S_ISREG(found.st_mode):
            return None
        if identity not in self._by_identity:
            try:
                self._by_identity[identity] = self._map(path, identity)
            except (OSError, ValueError):
                return None
        return self._by_identity[identity]

    def _map(self, path: str, identity: Identity) -> LinkedFile:
        real = os.path.realpath(path)
        with open_regular(path) as handle:
            head = handle.read(_HEADER)
            if len(head) < _HEADER:
                return _refused(identity, real, "file too short")
            if head[:4] != MAGIC:
                blank = not any(head)
                return _refused(identity, real, "invalid ELF header", blank=blank)
            bits = {1: 32, 2: 64}.get(head[4], -1)
            machine = int.from_bytes(head[18:20], sys.byteorder)
            if head[5] != {"little": 1, "big": 2}[sys.byteorder]:
                problem = f"ELF file data encoding not {sys.byteorder}-endian"
                return _refused(identity, real, problem, machine, bits)
            view = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
        try:
            parsed = dynamic.read(view)
        except Malformed as error:
            view.close()
            return _refused(identity, real, str(error), machine, bits)
        self._views[identity] = view
        return LinkedFile(
            identity=identity,
            real=real,
            dynamic=parsed,
            symbols=Symbols(view, parsed),
            machine=machine,
            bits=bits,
        )

    def release(self, kept: Iterable[Identity]) -> None:
        """Let go of files but those, once there are many.

        Each map holds a descriptor, of which a process has a thousand or so. What is asked for
        again is opened again.
        """
        if len(self._views) < _MANY:
            return
        gone = self._views.keys() - set(kept)
        for identity in gone:
            self._views.pop(identity).close()
            del self._by_identity[identity]
        self._by_path = {
            path: file
            for path, file in self._by_path.items()
            if file is None or file.identity not in gone
        }

    def close(self) -> None:
        """Unmap every file."""
        for view in self._views.values():
            view.close()
        self._views.clear()


def refusal(path: str) -> str | None:
    """Return why the loader would refuse one library, None where it takes it or there is none."""
    files = LinkedFiles()
    try:
        found = files.read(path)
    finally:
        files.close()
    return found.problem or None if found is not None else None


def _refused(
    identity: Identity,
    real: str,
    problem: str,
    machine: int = 0,
    bits: int = 0,
    *,
    blank: bool = False,
) -> LinkedFile:
    nothing = Dynamic(kind=0, machine=machine, bits=max(bits, 32), endian="<")
    return LinkedFile(
        identity=identity,
        real=real,
        dynamic=nothing,
        symbols=Symbols(b"", nothing),
        machine=machine,
        bits=bits,
        problem=problem,
        blank=blank,
    )
