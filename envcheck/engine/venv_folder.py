"""The folder of a built venv: whose it is, what is in it, and whether it is whole.

environment/        what jobs run: the locked packages and the built extensions
builder/            a clone of it with the compilers' packages, only where something is built
toolchain/          cuda (CUDA_HOME), sources, wheels, extensions.json
scratch/, tmp/      only while a guest or a build runs
.envcheck           made first: the folder is envcheck's, and what stands above it may remove
.envcheck-built     made last: of which recipe the rest is
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from envcheck import atomic
from envcheck.errors import FileUnavailable

_PARTS = ("environment", "builder", "toolchain", "scratch", "tmp")
_OTHER_FOLDER = "name a folder that you may write to"


class VenvFolder:
    """Everything below one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.environment = self.path / "environment"
        self.builder = self.path / "builder"
        self.toolchain = self.path / "toolchain"
        self.cuda = self.toolchain / "cuda"
        self.scratch = self.path / "scratch"
        self.temporary = self.path / "tmp"
        self._marker = self.path / ".envcheck"
        self._record = self.path / ".envcheck-built"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the folder ours, and nobody else's meanwhile.

        Raises FileUnavailable where it cannot be written, holds what envcheck did not make,
        or is being built by another envcheck.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self._marker.exists() and any(self.path.iterdir()):
                message = f"{self.path}: is not empty, and envcheck did not make it"
                raise FileUnavailable(message, remedy="name a folder that is empty or not there")
            handle = self._marker.open("a", encoding="utf-8")
        except OSError as error:
            message = f"{self.path}: cannot be made: {error.strerror}"
            raise FileUnavailable(message, remedy=_OTHER_FOLDER) from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                message = f"{self.path}: another envcheck is building there"
                raise FileUnavailable(message, remedy="wait for it, or name another") from None
            yield

    def made_of(self, recipe: str, *, builder: bool) -> str | None:
        """Return the kernels that a whole environment of this recipe digest names, or None."""
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            is_of, kernels = record["recipe"] == recipe, str(record["kernels"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        wanted = (self.environment, self.builder) if builder else (self.environment,)
        # An interpreter that was removed since leaves links to nothing.
        is_there = all((place / "bin" / "python").exists() for place in wanted)
        return kernels if is_of and is_there else None

    def record(self, recipe: str, kernels: str) -> None:
        """Write down that what is here is whole; raises FileUnavailable."""
        record = json.dumps({"kernels": kernels, "recipe": recipe})
        atomic.write(self._record, f"{record}\n".encode())

    def forget(self) -> None:
        """Take what is here for unfinished from now on; raises OSError."""
        self._record.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all that was built, its record first; raises FileUnavailable."""
        try:
            self.forget()
            for name in _PARTS:
                self.remove(self.path / name)
        except OSError as error:
            message = f"{error.filename or self.path}: cannot be removed: {error.strerror}"
            raise FileUnavailable(message, remedy="remove the folder by hand") from None

    @contextmanager
    def with_scratch(self) -> Iterator[None]:
        """Make the folder for what a guest writes, and remove it; raises FileUnavailable."""
        try:
            self.remove(self.scratch)
            self.scratch.mkdir(parents=True)
        except OSError as error:
            message = f"{self.scratch}: cannot be made: {error.strerror}"
            raise FileUnavailable(message, remedy=_OTHER_FOLDER) from None
        try:
            yield
        finally:
            with suppress(OSError):
                self.remove(self.scratch)
                # One that is there for nothing else.
                self.path.rmdir()

    @staticmethod
    def remove(path: Path) -> None:
        """Remove a folder if it is there; of a link, the link alone. Raises OSError."""
        if path.is_symlink():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)


def clone(source: Path, target: Path) -> None:
    """Copy a venv by hard links: installing into the copy replaces files, and changes none.

    Python takes the folder of the link that it was started by as its prefix; scripts name
    their interpreter, and are written anew. Raises OSError.
    """
    shutil.copytree(source, target, symlinks=True, copy_function=_link)
    for path in (target / "bin").iterdir():
        if path.is_file() and not path.is_symlink():
            data, mode = path.read_bytes(), path.stat().st_mode
            if data.startswith(b"#!"):
                path.unlink()
                path.write_bytes(data.replace(os.fsencode(source), os.fsencode(target), 1))
                path.chmod(mode)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        # A file system without hard links, or a file with too many.
        shutil.copy2(source, target)
