"""Turn the paths of a command line into files to read: plain, in directories, in archives.

Nothing is run, imported or unpacked under its own name. A member of a wheel or tar is
streamed to an unnamed temporary file, one at a time, and mapped from there.
"""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from envcheck.core.model import DeviceFile
from envcheck.errors import FileUnavailable
from envcheck.guest import archive, device_code, elf, fatbin
from envcheck.inflate import inflate

# Names that never hold device code; everything else is told by content.
_TEXT = frozenset(
    [
        ".py",
        ".pyi",
        ".pyc",
        ".h",
        ".hpp",
        ".hh",
        ".cuh",
        ".inl",
        ".txt",
        ".md",
        ".rst",
        ".json",
        ".yaml",
        ".yml",
        ".toml",
        ".cmake",
        ".html",
        ".js",
        ".css",
        ".png",
        ".svg",
        ".jpg",
        ".gif",
        ".csv",
        ".xml",
        ".typed",
        ".pyx",
        ".pxd",
        ".ipynb",
        ".safetensors",
        ".gguf",
    ]
)
_HEAD = 4096
_MAX_NESTING = 3
_MAX_MEMBERS = 1 << 20
# Kept free on the disk that members are streamed to.
_RESERVE = 1 << 28


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that a source gave: a file that was read, or a file of no interest."""

    file: DeviceFile | None
    """None for a file of a format that cannot hold device code."""


Progress = Callable[[str, int], None]
"""Called with what is being read, and its bytes."""


def read_paths(paths: list[str], progress: Progress) -> Iterator[Seen]:
    """Yield what every path holds, in a stable order; raises FileUnavailable if all are absent.

    A path that is absent among others that are not is a problem of its own, and the others
    are still read.
    """
    absent = [path for path in paths if not os.path.exists(path)]
    if len(absent) == len(paths):
        message = f"{absent[0]}: no such file or directory"
        raise FileUnavailable(message, remedy="check the path")
    for path in paths:
        if os.path.isdir(path):
            yield from _read_directory(path, progress)
        else:
            yield from _read_file(path, path, progress, given=True)


def problem(path: str, message: str) -> Seen:
    """Say that a file could not be read."""
    return Seen(DeviceFile(path=path, format="other", size=0, problem=message))


def _read_directory(root: str, progress: Progress) -> Iterator[Seen]:
    errors: list[OSError] = []
    real = os.path.realpath(root)
    for folder, folders, names in os.walk(root, onerror=errors.append):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) and _inside(os.path.realpath(path), real):
                continue  # its target is read under its own name
            yield from _read_file(path, path, progress, given=False)
        for name in folders:
            path = os.path.join(folder, name)
            if os.path.islink(path) and not _inside(os.path.realpath(path), real):
                file = DeviceFile(
                    path=path,
                    format="other",
                    size=0,
                    skipped="symbolic link to a directory, not followed",
                )
                yield Seen(file)
    for error in errors:
        yield problem(str(error.filename), error.strerror or "cannot be read")


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _read_file(path: str, name: str, progress: Progress, *, given: bool) -> Iterator[Seen]:
    """Read one file of the file system; never opens anything but a regular file."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            yield problem(name, "not a regular file")
            return
        progress(name, status.st_size)
        if not given and Path(name).suffix in _TEXT:
            yield Seen(None)
            return
        with open(path, "rb", buffering=0) as handle:
            yield from _read_handle(handle, name, status.st_size, progress, given=given, depth=0)
    except OSError as error:
        yield problem(name, error.strerror or str(error))


def _read_handle(
    handle: IO[bytes], name: str, size: int, progress: Progress, *, given: bool, depth: int
) -> Iterator[Seen]:
    head = handle.read(_HEAD)
    if zipfile.is_zipfile(handle) and head[:2] == b"PK":
        yield from _nested(handle, name, progress, depth, _zip_members)
        return
    handle.seek(0)
    if _is_tar(head):
        yield from _nested(handle, name, progress, depth, _tar_members)
        return
    if not given and not _of_interest(head, name):
        yield Seen(None)
        return
    if size == 0:
        yield Seen(device_code.read(b"", path=name, inflate=inflate))
        return
    with mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as view:
        yield Seen(device_code.read(view, path=name, inflate=inflate))


def _is_tar(head: bytes) -> bool:
    return (
        head[257:262] == b"ustar"
        or head[:2] == b"\x1f\x8b"
        or head[:3] == b"BZh"
        or (head[:6] == b"\xfd7zXZ\0")
    )


def _of_interest(head: bytes, name: str) -> bool:
    """Say whether a file found in a directory or archive gets a finding of its own."""
    magics = (elf.MAGIC, archive.AR_MAGIC, archive.THIN_MAGIC, fatbin.MAGIC)
    suffixes = {".so", ".o", ".a", ".cubin", ".fatbin", ".ptx"}
    named = ".so." in name or Path(name).suffix in suffixes
    return head.startswith(magics) or named or device_code.is_ptx(head)


Members = Callable[[IO[bytes]], "Iterator[tuple[str, int, IO[bytes]]]"]


def _nested(
    handle: IO[bytes], name: str, progress: Progress, depth: int, members: Members
) -> Iterator[Seen]:
    """Read the members of an archive, whatever is wrong with it being one problem of its own."""
    if depth >= _MAX_NESTING:
        yield problem(name, f"archives nested more than {_MAX_NESTING} deep")
        return
    handle.seek(0)
    try:
        for count, (member, size, stream) in enumerate(members(handle)):
            if count >= _MAX_MEMBERS:
                yield problem(name, f"more than {_MAX_MEMBERS} members")
                return
            progress(member, size)
            yield from _member(f"{name}!/{member}", size, stream, progress, depth)
    except (
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        NotImplementedError,
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        MemoryError,
    ) as error:
        yield problem(name, f"archive: {error or type(error).__name__}")


def _zip_members(handle: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(handle) as wheel:
        for info in sorted(wheel.infolist(), key=lambda i: i.header_offset):
            if not info.is_dir():
                with wheel.open(info) as stream:
                    yield info.filename, info.file_size, stream


def _tar_members(handle: IO[bytes]) -> Iterator[tuple[str, int, IO[bytes]]]:
    with tarfile.open(fileobj=handle, mode="r|*") as tar:
        for info in tar:
            stream = tar.extractfile(info) if info.isreg() else None
            if stream is not None:
                yield info.name, info.size, stream


def _member(
    name: str, size: int, stream: IO[bytes], progress: Progress, depth: int
) -> Iterator[Seen]:
    suffix = Path(name).suffix
    if suffix in _TEXT:
        yield Seen(None)
        return
    head = stream.read(_HEAD)
    if not (_of_interest(head, name) or head[:2] == b"PK" or _is_tar(head)):
        yield Seen(None)
        return
    with tempfile.TemporaryFile() as copy:
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if size + _RESERVE > free:
            yield problem(name, f"{size} bytes unpacked do not fit the {free} bytes free")
            return
        copy.write(head)
        written = len(head)
        while piece := stream.read(1 << 20):
            written += len(piece)
            if written > size:
                yield problem(name, f"more bytes than the {size} that the archive declares")
                return
            copy.write(piece)
        copy.flush()
        copy.seek(0)
        yield from _read_handle(copy, name, written, progress, given=False, depth=depth + 1)
