"""Installed distributions, and the digest that names an environment.

The digest is SHA-256 over one line for each distribution, sorted: normalised name, version
and record digest, separated by NUL. A record digest is SHA-256 over the sorted rows
`path,hash,size` of RECORD, without the rows that differ between machines or installers: rows
without a hash, compiled bytecode, everything outside the site directory (scripts carry the
interpreter's path) and the installer's own notes. So the same wheels give the same digest on
every machine, in any order, from any installer.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable
from importlib import metadata
from urllib.parse import urlsplit, urlunsplit

from envcheck.core.model import Distribution

_NOTES = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")
_COMPILED = re.compile(r"\.so(\.\d+)*$|\.(a|o|cubin|fatbin|ptx)$")
_OF_INTEREST = ("torch", "pytorch-triton", "triton", "pytorch_triton")


def is_compiled(path: str) -> bool:
    """Say whether a path names a file that may hold device code."""
    return _COMPILED.search(path) is not None


def read_all(folders: Iterable[str]) -> tuple[Distribution, ...]:
    """Read the distributions of site directories, sorted by name and version."""
    found = [_read(entry) for folder in folders for entry in metadata.distributions(path=[folder])]
    return tuple(sorted(found, key=lambda d: (d.name, d.version)))


def _read(entry: metadata.Distribution) -> Distribution:
    folder = os.path.basename(str(getattr(entry, "_path", "unknown")))
    # A broken installation may have no METADATA; it is named by its folder then.
    whole = entry.read_text("METADATA") or entry.read_text("PKG-INFO")
    name, version = (entry.metadata["Name"], entry.metadata["Version"]) if whole else (None, None)
    rows = _rows(entry.read_text("RECORD"))
    return Distribution(
        name=normalise(name or folder),
        version=version or "unknown",
        record_digest=None if rows is None else record_digest(rows),
        direct_url=_direct_url(entry.read_text("direct_url.json")),
        files=tuple(sorted(row[0] for row in rows or () if is_compiled(row[0]))),
        requires=tuple(
            r
            for r in entry.requires or ()
            if re.split(r"[\s;(<>=!~\[]", r, maxsplit=1)[0].lower() in _OF_INTEREST
        ),
    )


def normalise(name: str) -> str:
    """Normalise a distribution's name as the packaging specifications say."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _rows(record: str | None) -> list[tuple[str, str, str]] | None:
    if record is None:
        return None
    padded = ([*row, "", "", ""][:3] for row in csv.reader(record.splitlines()) if row)
    return [(path.replace(os.sep, "/"), digest, size) for path, digest, size in padded]


def record_digest(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return the SHA-256 over the rows of RECORD that every machine shares."""
    stable = sorted(",".join(row) for row in rows if _is_stable(*row))
    return hashlib.sha256("\n".join(stable).encode()).hexdigest()


def _is_stable(path: str, digest: str, _size: str) -> bool:
    outside = path.startswith(("..", "/"))
    folder, _, name = path.rpartition("/")
    note = folder.endswith(".dist-info") and name in _NOTES
    return bool(digest) and not outside and not note and not path.endswith(".pyc")


def environment_digest(distributions: Iterable[Distribution]) -> str:
    """Return `sha256:...` over name, version and record digest of each distribution."""
    lines = sorted(f"{d.name}\0{d.version}\0{d.record_digest or '-'}\n" for d in distributions)
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def _direct_url(text: str | None) -> str | None:
    """Return where a distribution was installed from, without user name and password."""
    try:
        data = json.loads(text) if text else None
        parts = urlsplit(data["url"]) if isinstance(data, dict) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if parts is None:
        return None
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
