"""Installed distributions, and the digest that names an environment.

The digest is SHA-256 over one line for each distribution, sorted: normalised name, version
and record digest, separated by NUL. A record digest is SHA-256 over the sorted rows
`path,hash,size` of RECORD, without the rows that differ between machines or installers: rows
without a hash, compiled bytecode, everything outside the site directory (scripts carry the
interpreter's path) and the installer's own notes. So the same wheels give the same digest on
every machine, in any order, from any installer.

A RECORD that cannot be parsed has no rows: its digest is SHA-256 over `malformed`, NUL and its
bytes, so that it equals no whole one and no other broken one.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from email.message import Message
from email.parser import HeaderParser
from importlib import metadata
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from envcheck.core.distribution import Distribution
from envcheck.core.names import normalise, visible

_NOTES = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")
_ENDS = (".so", ".a", ".o", ".cubin", ".fatbin", ".ptx")
_COMPILED = re.compile(r"\.so(\.\d+)+$")
_NEWLINE = b"\n"
_LONGEST = 1 << 20
"""No metadata file is read further; the headers of real ones are some kilobytes."""
_OF_INTEREST = ("torch", "pytorch-triton", "triton", "pytorch_triton")


class Recorded(NamedTuple):
    """One distribution, and what its RECORD says below which site directory."""

    distribution: Distribution
    folder: str
    rows: list[tuple[str, str, str]]


def is_compiled(path: str) -> bool:
    """Say whether a path names a file that may hold device code."""
    # Most paths are none, and each is asked for: the regular expression is for the others.
    return path.endswith(_ENDS) or (".so." in path and _COMPILED.search(path) is not None)


def read_all(folders: Iterable[str]) -> tuple[Distribution, ...]:
    """Read the distributions of site directories, sorted by name and version.

    Of one that several directories have, the first counts: it is the one that is imported.
    """
    return tuple(one.distribution for one in _first(folders, lambda one: one._replace(rows=[])))


def read_rows(folders: Iterable[str]) -> list[Recorded]:
    """Read the same distributions in the same order, with the rows of their RECORD."""
    return _first(folders, lambda one: one)


def _first(folders: Iterable[str], keep: Callable[[Recorded], Recorded]) -> list[Recorded]:
    """Read distributions, of several of one name those of the first folder, and keep of each what counts."""
    found: dict[str, list[Recorded]] = {}
    for folder in folders:
        here: dict[str, list[Recorded]] = {}
        for entry in metadata.distributions(path=[folder]):
            one = keep(_read(entry, folder))
            here.setdefault(one.distribution.name, []).append(one)
        found = {**here, **found}
    every = (one for same in found.values() for one in same)
    return sorted(every, key=lambda one: _order(one.distribution))


def _order(one: Distribution) -> tuple[str, str, str]:
    return one.name, one.version, one.record_digest or ""


def project(entry: metadata.Distribution) -> str | None:
    """Return the folder of a project that is installed in place, None for any other."""
    data = direct_url(entry)
    info = data.get("dir_info")
    parts = urlsplit(data.get("url", ""))
    if isinstance(info, dict) and info.get("editable") is True and parts.scheme == "file":
        return unquote(parts.path)
    return None


def info(entry: metadata.Distribution) -> str:
    """Return the name of a dist-info directory: `torch-2.14.1.dist-info`."""
    return os.path.basename(str(getattr(entry, "_path", "")))


def headers(entry: metadata.Distribution) -> Message:
    """Return what METADATA says, or PKG-INFO; old ones are one file, of which the name is empty."""
    text = next(filter(None, (head(entry, n) for n in ("METADATA", "PKG-INFO", ""))), "")
    return HeaderParser().parsestr(text)


def head(entry: metadata.Distribution, name: str) -> str:
    """Return the headers of a metadata file without its body, which may be a long readme."""
    found = raw(entry, name)
    if found is None:
        return ""
    text = found[:_LONGEST].decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    return text.partition("\n\n")[0] + "\n"


def identity(entry: metadata.Distribution, said: Message) -> tuple[str, str]:
    """Return name and version; where the metadata lacks them, the folder's name has both."""
    told = said["Name"] if is_name(said["Name"]) else ""
    stem = re.sub(r"\.(dist|egg)-info$", "", info(entry))
    name, _, rest = stem.partition("-")
    version = said["Version"] or re.sub(r"-py\d.*$", "", rest) or "unknown"
    return normalise(visible(str(told or name or "unknown"))), visible(str(version))


def is_name(text: object) -> bool:
    """Say whether a package may be called so, by the rule of the core metadata (PEP 508)."""
    return re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", str(text or "")) is not None


def _read(entry: metadata.Distribution, folder: str) -> Recorded:
    said = headers(entry)
    name, version = identity(entry, said)
    record = raw(entry, "RECORD")
    rows, problem = _record(record)
    digest = None if record is None else record_digest(rows)
    if record is not None and problem is not None:
        digest = hashlib.sha256(b"malformed\0" + record).hexdigest()
    distribution = Distribution(
        name=name,
        version=version,
        record_digest=digest,
        direct_url=_origin(direct_url(entry)),
        files=tuple(sorted({row[0] for row in rows if is_compiled(row[0])})),
        requires=tuple(
            line
            for line in map(str, said.get_all("Requires-Dist") or ())
            if re.split(r"[\s;(<>=!~\[]", line, maxsplit=1)[0].lower() in _OF_INTEREST
        ),
        problem=problem,
    )
    return Recorded(distribution, folder, rows)


def _text(entry: metadata.Distribution, name: str) -> str | None:
    """Return one file of a dist-info directory, None when it is absent or unreadable."""
    try:
        return entry.read_text(name)
    except (OSError, ValueError):
        return None


def raw(entry: metadata.Distribution, name: str) -> bytes | None:
    """Return the bytes of one file of a dist-info directory, None when there are none to read."""
    folder: Any = getattr(entry, "_path", None)
    try:
        return None if folder is None else bytes(folder.joinpath(name).read_bytes())
    except (OSError, ValueError, KeyError):
        return None


def record_rows(entry: metadata.Distribution) -> list[tuple[str, str, str]]:
    """Return path, hash and size of each row of RECORD, none where it cannot be parsed."""
    return _record(raw(entry, "RECORD"))[0]


def _record(record: bytes | None) -> tuple[list[tuple[str, str, str]], str | None]:
    """Return the rows of RECORD, and why it cannot be parsed."""
    try:
        if record is not None:
            _check(record)
        return ([] if record is None else _rows(record)), None
    except UnicodeDecodeError as error:
        return [], f"RECORD: not UTF-8 at byte {error.start}"
    except ValueError as error:
        return [], f"RECORD: {error}"


def _check(record: bytes) -> None:
    """Raise ValueError that says where a RECORD cannot be text."""
    record.decode("utf-8")
    if b"\0" in record:
        before = record[: record.index(0)]
        message = f"a NUL byte in line {len(before.split(_NEWLINE))}"
        raise ValueError(message)


def _rows(record: bytes) -> list[tuple[str, str, str]]:
    """Return the rows of RECORD; raises ValueError that says why it cannot be parsed."""
    # Decoded piece by piece: as one text in memory it takes four bytes for each.
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(record), "utf-8", newline=""), strict=True)
    rows = []
    try:
        for row in filter(None, reader):
            path, digest, size = row if len(row) == 3 else [*row, "", ""][:3]
            if not path:
                message = f"no path in line {reader.line_num}"
                raise ValueError(message)
            # Sizes repeat, paths and digests do not.
            rows.append((path.replace(os.sep, "/"), digest, sys.intern(size)))
    except csv.Error as error:
        message = f"{error} in line {reader.line_num}"
        raise ValueError(message) from None
    return rows


def record_digest(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return the SHA-256 over the rows of RECORD that every machine shares."""
    total = hashlib.sha256()
    between = b""
    # Line by line: joined they are as long as RECORD, which may have millions.
    for line in sorted({",".join(row) for row in rows if _is_stable(*row)}):
        total.update(between + line.encode())
        between = b"\n"
    return total.hexdigest()


def _is_stable(path: str, digest: str, _size: str) -> bool:
    # Half of the rows have no hash: told first, since a gate waits for all of this.
    if not digest or path.endswith(".pyc") or path.startswith(("..", "/")):
        return False
    folder, _, name = path.rpartition("/")
    return name not in _NOTES or not folder.endswith(".dist-info")


def environment_digest(distributions: Iterable[Distribution]) -> str:
    """Return `sha256:...` over name, version and record digest of each distribution."""
    lines = sorted(f"{d.name}\0{d.version}\0{d.record_digest or '-'}\n" for d in distributions)
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def direct_url(entry: metadata.Distribution) -> dict[str, Any]:
    """Return what direct_url.json says, empty when there is none that can be read."""
    try:
        data = json.loads(_text(entry, "direct_url.json") or "{}")
        urlsplit(data["url"] if isinstance(data, dict) else "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _origin(data: dict[str, Any]) -> str | None:
    """Return where a distribution was installed from, without anything that may be a secret.

    User name and password are one place for it, the query of a signed address another.
    """
    if "url" not in data:
        return None
    parts = urlsplit(str(data["url"]))
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
