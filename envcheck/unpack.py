"""The members of zip, tar and compressed tar files, streamed, within bounds no archive moves.

A hostile archive can lie about every size and unpack to a thousand times its own bytes. So
what it unpacks to is counted (`Budget`), no single read of its tables is larger than a real
table, and headers end where headers end. Whatever else is wrong with an archive, Python's
own readers say, with one of the errors in `UNREADABLE`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    MemoryError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
)

# Device code packs to a third; nothing that is installed packs to a hundredth.
_RATIO = 100
_LEAST_BUDGET = 1 << 28
# 60,000 installed files have a zip directory of 9 MB.
_MAX_READ = 1 << 25
_MAX_HEADERS = 1 << 20
_MAX_WINDOW = 1 << 27
_BLOCK = 512
_AHEAD = 1 << 18


def _zstd(handle: IO[bytes]) -> Any:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    reader = unpacker.stream_reader(handle, read_across_frames=True)
    return _Translated(reader, zstandard.ZstdError)


class _Translated:
    """A reader whose own kind of error comes out as one of `UNREADABLE`."""

    def __init__(self, inner: IO[bytes], error: type[Exception]) -> None:
        self._inner, self._error = inner, error

    def read(self, size: int) -> bytes:
        try:
            return self._inner.read(size)
        except self._error as error:
            raise ValueError(str(error)) from None


_PACKED: tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...] = (
    (b"\x1f\x8b", lambda handle: gzip.GzipFile(fileobj=handle)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", _zstd),
)
_NAMES = (
    ".whl",
    ".zip",
    ".pt2",
    ".tar",
    ".tgz",
    ".tbz2",
    ".txz",
    ".tar.gz",
    ".tar.bz2",
    ".tar.xz",
    ".tar.zst",
)


class TooLarge(Exception):
    """An archive unpacks to more than anything honest does."""


class Budget:
    """How many bytes one file may unpack to, over all archives inside it."""

    def __init__(self, packed: int) -> None:
        self._whole = self._left = _LEAST_BUDGET + _RATIO * packed

    def spend(self, size: int) -> None:
        """Count `size` more bytes; raises TooLarge when there were too many."""
        self._left -= size
        if self._left < 0:
            message = f"unpacking it goes past {self._whole} bytes, more than honest archives need"
            raise TooLarge(message)


@dataclass(frozen=True, slots=True)
class Member:
    """One regular file in an archive."""

    name: str
    size: int
    """Bytes unpacked, as the archive declares them."""
    stored: int
    """Bytes that it takes in the archive, 0 where that is not known."""
    open: Callable[[], IO[bytes]]
    """Raises one of `UNREADABLE`."""


Reader = Callable[[IO[bytes], Budget], Iterator[Member]]


def reader(handle: IO[bytes], head: bytes, name: str, *, given: bool) -> Reader | None:
    """Tell by content how to read an archive, None for a file that is none.

    Broken zips and compressed files that hold no tar are none either, unless somebody named
    one as such: then reading it says what is wrong with it.
    """
    claims = given or name.lower().endswith(_NAMES)
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return zip_members if claims or zipfile.is_zipfile(handle) else None
    if _is_tar(head):
        from envcheck import image_tar

        return image_tar.image_members if image_tar.is_image(handle) else tar_members
    for magic, unpack in _PACKED:
        if head.startswith(magic):
            return tar_members if claims or _is_tar(_first(unpack, handle)) else None
    return None


def may_be_archive(head: bytes) -> bool:
    """Say whether a file that starts with `head` is worth a closer look by `reader`."""
    return head.startswith((b"PK\3\4", b"PK\5\6", *(m for m, _ in _PACKED))) or _is_tar(head)


def _first(unpack: Callable[[IO[bytes]], Any], handle: IO[bytes]) -> bytes:
    handle.seek(0)
    try:
        return bytes(unpack(handle).read(_BLOCK))
    except UNREADABLE:
        return b""


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "backslashreplace")
    except (tarfile.HeaderError, ValueError):
        return head[257:262] == b"ustar"
    return True


class _Bounded(io.RawIOBase):
    """A file of which no table larger than a real one is read at once."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle

    def read(self, size: int = -1) -> bytes:
        data = self._handle.read(min(size, _MAX_READ + 1) if size >= 0 else _MAX_READ + 1)
        if len(data) > _MAX_READ:
            message = f"its directory has more than {_MAX_READ} bytes"
            raise zipfile.BadZipFile(message)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._handle.seek(offset, whence)

    def tell(self) -> int:
        return self._handle.tell()

    def seekable(self) -> bool:
        return True


def open_zip(handle: IO[bytes]) -> zipfile.ZipFile:
    """Open a zip whose tables are no larger than real ones; raises one of `UNREADABLE`."""
    return zipfile.ZipFile(_Bounded(handle))


def zip_members(handle: IO[bytes], _budget: Budget) -> Iterator[Member]:
    """Yield the members of a zip in the order in which they are stored."""
    with open_zip(handle) as archive:
        for info in sorted(archive.infolist(), key=lambda i: i.header_offset):
            if not info.filename:  # Python's own is_dir() trips over it
                message = "a member without a name"
                raise zipfile.BadZipFile(message)
            link = stat.S_ISLNK(info.external_attr >> 16)
            if not info.is_dir() and not link:
                opened = partial(_open, archive, info)
                yield Member(info.filename, info.file_size, info.compress_size, opened)


def _open(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    # Python unpacks other methods without a bound on memory; no wheel uses them.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        message = f"zip compression method {info.compress_type} is not read"
        raise NotImplementedError(message)
    if info.flag_bits & 1:
        message = "encrypted"
        raise RuntimeError(message)
    return archive.open(info)


class _Metered(io.RawIOBase):
    """The unpacked bytes of a tar, counted; `limit` is where the next headers must have ended."""

    def __init__(self, handle: IO[bytes], budget: Budget) -> None:
        self._handle, self._budget = handle, budget
        self._at, self.limit = 0, _AHEAD + _MAX_HEADERS

    def read(self, size: int = -1) -> bytes:
        data = self._handle.read(size)
        self._at += len(data)
        self._budget.spend(len(data))
        if self._at > self.limit:
            message = f"headers of more than {_MAX_HEADERS} bytes"
            raise tarfile.ReadError(message)
        return data


class _StrictInfo(tarfile.TarInfo):
    """A header that is wrong is an error; tarfile takes one for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictInfo:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise  # the end of the archive
            message = f"header of a member: {error}"
            raise tarfile.ReadError(message) from None


def _same(stream: IO[bytes]) -> IO[bytes]:
    return stream


def tar_members(handle: IO[bytes], budget: Budget) -> Iterator[Member]:
    """Yield the regular files of a tar, compressed or not, in order."""
    before = 0
    for info, stream in tar_entries(handle, budget):
        if stream is not None:
            stored = handle.tell() - before
            yield Member(info.name, info.size, stored, partial(_same, stream))
            before = handle.tell()


def tar_entries(
    handle: IO[bytes], budget: Budget
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield every entry of a tar, compressed or not, with its bytes if it is a regular file."""
    head = handle.read(8)
    handle.seek(0)
    unpack = next((u for magic, u in _PACKED if head.startswith(magic)), None)
    metered = _Metered(handle if unpack is None else unpack(handle), budget)
    with tarfile.open(
        fileobj=metered,
        mode="r|",
        bufsize=_AHEAD,
        tarinfo=_StrictInfo,
        errors="backslashreplace",
    ) as tar:
        while (info := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # or it keeps every one
            metered.limit = info.offset_data + info.size + _AHEAD + _MAX_HEADERS
            yield info, tar.extractfile(info) if info.isreg() else None
