r"""The content digest: what is in an image or a folder, and nothing of when it was made.

`sha256:` + SHA-256 over one line of bytes for each entry, in the order of their paths as
bytes. The first line is `envcheck/content/v1`; each further one holds, separated by tabs,

    path     relative, with `/`, no leading `./`; escaped as below
    type     file, folder, link, pipe, char or block
    mode     the permission bits and setuid, setgid, sticky, as four octal digits
    owner    uid:gid as numbers
    target   of a link where it points, of a device its major:minor; otherwise empty
    content  of a file `sha256:` of its bytes; otherwise empty

and ends with a newline. A backslash, tab or newline in a path or target is written as \\,
\t or \n, so that no name can pretend to be a second line. Names are bytes: one that is no
UTF-8 counts with the bytes that it has.

Not counted: times, the root folder itself, extended attributes, sparse holes, sizes of
folders, and whether two equal files are one inode (a hard link counts as the file).
Sockets cannot stand in an image and are passed over. Of a container's export are left out
the places that an engine fills at each start whatever the image holds: `dev`, `proc`,
`sys`, `.dockerenv`, `etc/hosts`, `etc/hostname`, `etc/resolv.conf` and `etc/mtab`.

Bytes are streamed, never held: memory grows by some hundred bytes for each entry.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, cast

HEADER = b"envcheck/content/v1\n"
_PIECE = 1 << 20
_ENGINE_FOLDERS = (b"dev", b"proc", b"sys")
_ENGINE_FILES = frozenset(
    {b".dockerenv", b"etc/hosts", b"etc/hostname", b"etc/resolv.conf", b"etc/mtab"}
)
Read = Callable[[int], None]
"""Told how many bytes were read since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the digest knows of one path."""

    type: str
    mode: int
    uid: int
    gid: int
    target: bytes = b""
    content: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All entries, by path."""

    entries: Mapping[bytes, Entry]

    @property
    def digest(self) -> str:
        """`sha256:...` as the module describes it."""
        total = hashlib.sha256(HEADER)
        for path in sorted(self.entries):
            total.update(_line(path, self.entries[path]))
        return f"sha256:{total.hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One path that two contents do not share."""

    path: str
    reason: str
    """`only in the first`, `only in the second`, or what differs: `mode 0644, 0755`."""


def of_export(stream: IO[bytes], read: Read | None = None) -> Content:
    """Read the tar stream of a container's export; raises ValueError where it is malformed."""
    entries: dict[bytes, Entry] = {}
    counted = _Counted(stream)
    try:
        with tarfile.open(
            fileobj=cast("IO[bytes]", counted),
            mode="r|",
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for member in archive:
                path = _clean(os.fsencode(member.name))
                if path and not _is_engines(path):
                    entries[path] = _of_member(archive, member, entries, read)
                # A streamed archive keeps every member that it has seen, unless told not to.
                archive.members = []  # type: ignore[attr-defined]
            # tarfile takes an end between two members for the end of the archive.
            counted.drain()
            if counted.total < archive.offset + 2 * tarfile.BLOCKSIZE:
                message = "it ends before its end mark"
                raise ValueError(message)
    except tarfile.TarError as error:
        message = f"malformed archive: {error}"
        raise ValueError(message) from None
    return Content(entries=entries)


class _Counted:
    """Counts what is read from a stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.total = 0

    def read(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self.total += len(piece)
        return piece

    def drain(self) -> None:
        while self.read(_PIECE):
            pass


def of_folder(folder: str, read: Read | None = None) -> Content:
    """Read a folder of this machine; raises OSError where something cannot be read."""
    root = os.fsencode(folder)
    seen: dict[tuple[int, int], str] = {}
    entries: dict[bytes, Entry] = {}
    for path in _walk(root):
        status = os.lstat(path)
        kind = _kind(status.st_mode)
        if kind is None:
            continue
        content = ""
        if kind == "file":
            inode = (status.st_dev, status.st_ino)
            if status.st_nlink == 1 or inode not in seen:
                with open(path, "rb", buffering=0) as handle:
                    seen[inode] = _hash(handle, read)
            content = seen[inode] if status.st_nlink > 1 else seen.pop(inode)
        entries[os.path.relpath(path, root)] = Entry(
            type=kind,
            mode=0o777 if kind == "link" else stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            target=_target(path, kind, status),
            content=content,
        )
    return Content(entries=entries)


def differences(first: Content, second: Content) -> Iterator[Difference]:
    """Yield what differs between two contents, in the order of the paths."""
    for path in sorted(first.entries.keys() | second.entries.keys()):
        one, other = first.entries.get(path), second.entries.get(path)
        if one == other:
            continue
        if one is None or other is None:
            reason = "only in the second" if one is None else "only in the first"
        else:
            reason = "; ".join(_reasons(one, other))
        yield Difference(path=_text(path), reason=reason)


def _reasons(one: Entry, other: Entry) -> Iterator[str]:
    if one.type != other.type:
        yield f"type {one.type}, {other.type}"
    if one.mode != other.mode:
        yield f"mode {one.mode:04o}, {other.mode:04o}"
    if (one.uid, one.gid) != (other.uid, other.gid):
        yield f"owner {one.uid}:{one.gid}, {other.uid}:{other.gid}"
    if one.target != other.target:
        yield f"target {_text(one.target)}, {_text(other.target)}"
    if one.content != other.content and one.type == other.type:
        yield "bytes"


def _line(path: bytes, entry: Entry) -> bytes:
    """Return the line of one entry."""
    mode, owner = f"{entry.mode:04o}", f"{entry.uid}:{entry.gid}"
    fields = (
        _escape(path),
        entry.type.encode(),
        mode.encode(),
        owner.encode(),
        _escape(entry.target),
        entry.content.encode(),
    )
    return b"\t".join(fields) + b"\n"


def _escape(name: bytes) -> bytes:
    return name.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")


def _text(name: bytes) -> str:
    """Return a name as a person may see it: no control characters, nothing undecodable."""
    return "".join(
        c if c.isprintable() else f"\\x{ord(c):02x}"
        for c in name.decode("utf-8", "backslashreplace")
    )


def _clean(path: bytes) -> bytes:
    """Return a member's path without `./`, slashes at its ends, and doubled slashes."""
    return b"/".join(part for part in path.split(b"/") if part not in {b"", b"."})


def _is_engines(path: bytes) -> bool:
    """Say whether an engine puts this path into each container, whatever the image holds."""
    return path.split(b"/", 1)[0] in _ENGINE_FOLDERS or path in _ENGINE_FILES


def _of_member(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    before: Mapping[bytes, Entry],
    read: Read | None,
) -> Entry:
    """Describe one member; raises ValueError for a hard link to nothing."""
    if member.islnk():
        linked = before.get(_clean(os.fsencode(member.linkname)))
        if linked is None:
            message = f"{member.name!r}: hard link to {member.linkname!r}, which is not before it"
            raise ValueError(message)
        return linked
    content, target = "", b""
    if member.issym():
        kind, target = "link", os.fsencode(member.linkname)
    elif member.isdir():
        kind = "folder"
    elif member.isfifo():
        kind = "pipe"
    elif member.ischr() or member.isblk():
        kind = "char" if member.ischr() else "block"
        target = f"{member.devmajor}:{member.devminor}".encode()
    else:
        kind = "file"
        handle = archive.extractfile(member)
        content = _hash(handle, read) if handle is not None else ""
    return Entry(
        type=kind,
        mode=0o777 if kind == "link" else member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        target=target,
        content=content,
    )


def _hash(handle: IO[bytes], read: Read | None) -> str:
    total = hashlib.sha256()
    while piece := handle.read(_PIECE):
        total.update(piece)
        if read is not None:
            read(len(piece))
    return f"sha256:{total.hexdigest()}"


def _walk(root: bytes) -> Iterable[bytes]:
    """Yield every path below `root`; a folder that cannot be listed raises OSError."""

    def refuse(error: OSError) -> None:
        raise error

    for where, folders, names in os.walk(root, onerror=refuse):
        for name in (*folders, *names):
            yield os.path.join(where, name)


def _kind(mode: int) -> str | None:
    kinds = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "folder",
        stat.S_IFLNK: "link",
        stat.S_IFIFO: "pipe",
        stat.S_IFCHR: "char",
        stat.S_IFBLK: "block",
    }
    return kinds.get(stat.S_IFMT(mode))


def _target(path: bytes, kind: str, status: os.stat_result) -> bytes:
    if kind == "link":
        return os.readlink(path)
    if kind in {"char", "block"}:
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}".encode()
    return b""
