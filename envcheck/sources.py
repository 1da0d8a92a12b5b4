"""Turn the paths of a command line into files to read: plain, in directories, in archives.

Nothing is run, imported or unpacked under its own name. A member of a wheel or tar is
streamed to an unnamed temporary file, one at a time, and mapped from there.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from envcheck import unpack
from envcheck.core.artefacts import AOT
from envcheck.core.device_file import DeviceFile
from envcheck.core.names import visible
from envcheck.errors import FileUnavailable
from envcheck.guest import archive, artefacts, device_code, elf, fatbin
from envcheck.guest.linked_files import refusal
from envcheck.guest.reading import open_regular, read_code
from envcheck.guest.triton_cache import MAX_JSON
from envcheck.inflate import inflate
from envcheck.members import Members
from envcheck.recognised import Seen, by_bytes, by_name

# Names that never hold device code; everything else is told by content.
_TEXT = frozenset([
    ".py", ".pyi", ".pyc", ".pyx", ".pxd", ".h", ".hpp", ".hh", ".cuh", ".inl", ".cmake",
    ".txt", ".md", ".rst", ".json", ".yaml", ".yml", ".toml", ".xml", ".csv", ".ipynb", ".typed",
    ".html", ".js", ".css", ".png", ".svg", ".jpg", ".gif", ".safetensors", ".gguf",
])  # fmt: skip
_CODE = frozenset({".so", ".o", ".a", ".cubin", ".fatbin", ".ptx"})
_ZIPS = (".whl", ".zip", ".pt2", ".tar", ".tgz", ".tar.gz")
"""Names of archives, which a file that was named must be."""
_ALWAYS_ZIPS = (".whl", ".pt2")
"""Those that nothing else is called: wherever it is found, such a file is one or is damaged."""
_HEAD = 4096
_MAX_NESTING = 3
_MAX_MEMBERS = 1 << 20
# Kept free on the disk that members are streamed to.
_RESERVE = 1 << 28


Progress = Callable[[str, int], None]
"""Called with what is read next, and how many bytes of the given files are read with it."""


def read_paths(paths: list[str], progress: Progress) -> Iterator[Seen]:
    """Yield what every path holds, in a stable order; raises FileUnavailable if none can be had.

    A path that cannot be had among others that can is a problem of its own, and the others
    are still read.
    """
    wrong = {path: reason for path in paths if (reason := _unavailable(path))}
    if len(wrong) == len(set(paths)):
        path, reason = next(iter(wrong.items()))
        more = f" (nor {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        message = f"{visible(path)}: {reason}{more}"
        raise FileUnavailable(message, remedy="check the path")
    for path in dict.fromkeys(paths):
        if path in wrong:
            yield problem(visible(path), wrong[path])
        elif os.path.isdir(path):
            yield from _read_directory(path, progress)
        else:
            yield from _read_file(path, progress, given=True)


def _unavailable(path: str) -> str | None:
    """Say why a path cannot be read, None when it can."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "neither a file nor a directory"
    return None if os.access(path, os.R_OK) else "no permission to read it"


def problem(path: str, message: str) -> Seen:
    """Say that a file could not be read."""
    return Seen(DeviceFile(path=path, format="other", size=0, problem=message))


def _skip(path: str, reason: str) -> Seen:
    return Seen(DeviceFile(path=path, format="other", size=0, skipped=reason))


def _read_directory(root: str, progress: Progress) -> Iterator[Seen]:
    errors: list[OSError] = []
    real = os.path.realpath(root)
    for folder, folders, names in os.walk(root, onerror=errors.append):
        folders.sort()
        for name in sorted(names):
            yield from _read_entry(os.path.join(folder, name), real, progress)
        for name in folders:
            path = os.path.join(folder, name)
            if os.path.islink(path) and not _inside(os.path.realpath(path), real):
                yield _skip(visible(path), "symbolic link to a directory, not followed")
    for error in errors:
        yield problem(visible(str(error.filename)), error.strerror or "cannot be read")


def _read_entry(path: str, root: str, progress: Progress) -> Iterator[Seen]:
    """Read what a directory lists and what is no directory."""
    if os.path.islink(path):
        if not os.path.exists(path):
            yield _skip(visible(path), "symbolic link to nothing") if _is_code(path) else Seen(None)
            return
        if _inside(os.path.realpath(path), root):
            return  # its target is read under its own name
    yield from _read_file(path, progress, given=False)


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _read_file(path: str, progress: Progress, *, given: bool) -> Iterator[Seen]:
    """Read one file of the file system; never opens anything but a regular file."""
    name = visible(path)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            yield _skip(name, "not a regular file, not opened")
        elif made := by_name(path, name):
            progress(name, status.st_size)
            yield made
        elif not given and Path(path).suffix in _TEXT:
            progress(name, status.st_size)
            yield Seen(None)
        else:
            with open_regular(path) as handle:
                if artefact := by_bytes(handle, name):
                    yield Seen(None, artefact=artefact)
                    if artefact.kind != AOT:
                        progress(name, status.st_size)
                        return
                budget = unpack.Budget(status.st_size)
                yield from _read_handle(handle, name, progress, budget, given=given, depth=0)
    except (OSError, ValueError) as error:
        yield problem(name, getattr(error, "strerror", None) or str(error))


def _read_handle(
    handle: IO[bytes],
    name: str,
    progress: Progress,
    budget: unpack.Budget,
    *,
    given: bool,
    depth: int,
) -> Iterator[Seen]:
    head = handle.read(_HEAD)
    reader = unpack.reader(handle, head, name, given=given)
    handle.seek(0)
    if reader is not None:
        yield from _nested(handle, name, progress, budget, depth, reader)
        return
    if depth == 0:
        progress(name, os.fstat(handle.fileno()).st_size)
    if name.endswith(_ZIPS if given else _ALWAYS_ZIPS):
        yield problem(name, "is named like an archive, and is none")
    elif given or _of_interest(head, name):
        file = read_code(handle, name, inflate)
        if depth and artefacts.is_extension(name):
            refused = refusal(f"/proc/self/fd/{handle.fileno()}")
            yield Seen(None, artefact=artefacts.built_extension(file, refused))
        else:
            yield Seen(file)
    else:
        yield Seen(None)


def _of_interest(head: bytes, name: str) -> bool:
    """Say whether a file found in a directory or archive gets a finding of its own."""
    magics = (elf.MAGIC, archive.AR_MAGIC, archive.THIN_MAGIC, fatbin.MAGIC, *artefacts.ENGINES)
    return head.startswith(magics) or _is_code(name) or device_code.is_ptx(head)


def _is_code(name: str) -> bool:
    """Say whether a file calls itself compiled code."""
    return ".so." in name or Path(name).suffix in _CODE


def _nested(
    handle: IO[bytes],
    name: str,
    progress: Progress,
    budget: unpack.Budget,
    depth: int,
    reader: unpack.Reader,
) -> Iterator[Seen]:
    """Read the members of an archive, whatever is wrong with it being one problem of its own."""
    if depth >= _MAX_NESTING:
        yield problem(name, f"archives nested more than {_MAX_NESTING} deep")
        return
    held = Members()
    try:
        for count, member in enumerate(reader(handle, budget)):
            if count >= _MAX_MEMBERS:
                yield problem(name, f"more than {_MAX_MEMBERS} members")
                return
            inner = f"{name}!/{visible(member.name)}"
            progress(inner, 0)
            if inner.endswith(".json") and member.size <= MAX_JSON:
                held.metadata(inner, _content(member, budget))
            seen = _read_member(inner, member, progress, budget, depth)
            if held.is_stage(inner):
                held.stage(inner, list(seen))
            else:
                yield from seen
            progress(inner, 0 if depth else member.stored)
    except unpack.TooLarge as error:
        if depth:
            raise
        yield problem(name, f"archive: {error}")
    except unpack.UNREADABLE as error:
        yield problem(name, f"archive: {error or type(error).__name__}")
    yield from held.end()


def _content(member: unpack.Member, budget: unpack.Budget) -> bytes:
    """Return a small member, nothing where it cannot be read."""
    try:
        with member.open() as stream:
            content = stream.read(MAX_JSON)
    except unpack.UNREADABLE:
        return b""
    budget.spend(len(content))
    return content


def _read_member(
    name: str, member: unpack.Member, progress: Progress, budget: unpack.Budget, depth: int
) -> Iterator[Seen]:
    """Read one member; what is wrong with it does not hide the next."""
    if Path(name).suffix in _TEXT:
        yield Seen(None)
        return
    try:
        with member.open() as stream:
            head = stream.read(_HEAD)
            budget.spend(len(head))
            if not (_of_interest(head, name) or unpack.may_be_archive(head)):
                yield Seen(None)
                return
            with tempfile.TemporaryFile(dir=_scratch()) as copy:
                _copy(head, stream, copy, member.size, budget)
                if artefact := by_bytes(copy, name):
                    yield Seen(None, artefact=artefact)
                    if artefact.kind != AOT:
                        return
                yield from _read_handle(copy, name, progress, budget, given=False, depth=depth + 1)
    except unpack.UNREADABLE as error:
        yield problem(name, f"archive: {error or type(error).__name__}")


def _copy(
    head: bytes, stream: IO[bytes], copy: IO[bytes], size: int, budget: unpack.Budget
) -> None:
    """Stream a member to disk; raises OSError or ValueError when it does not fit."""
    free = shutil.disk_usage(_scratch()).free
    if size + _RESERVE > free:
        message = f"{size} bytes unpacked do not fit the {free} bytes free in {_scratch()}"
        raise OSError(message)
    written = copy.write(head)
    while piece := stream.read(1 << 20):
        budget.spend(len(piece))
        written += copy.write(piece)
        if written > size:
            break
    if written != size:
        message = f"{written} bytes or more where the archive declares {size}"
        raise ValueError(message)
    copy.flush()
    copy.seek(0)


def _scratch() -> str:
    """Return where members are streamed to: /tmp is memory on many machines, /var/tmp is disk."""
    if "TMPDIR" not in os.environ and os.access("/var/tmp", os.W_OK | os.X_OK):  # noqa: S108
        return "/var/tmp"  # noqa: S108
    return tempfile.gettempdir()
