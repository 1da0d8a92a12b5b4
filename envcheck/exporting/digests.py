"""MANIFEST.sha256, as sha256sum writes and checks it: what has arrived, and its hash."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

NAME = "MANIFEST.sha256"
_LINE = re.compile(rb"(\\?)([0-9a-f]{64}) [ *](.+)", re.DOTALL)
_ESCAPES = {b"\\\\": b"\\", b"\\n": b"\n", b"\\r": b"\r"}


def write(digests: Mapping[str, str]) -> bytes:
    """Return the document; names with a newline or backslash are escaped as sha256sum does it."""
    lines = []
    for path, digest in sorted(digests.items()):
        name = os.fsencode(path)
        escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        mark = b"\\" if escaped != name else b""
        lines.append(mark + digest.encode() + b"  " + escaped + b"\n")
    return b"".join(lines)


def read(document: bytes) -> dict[str, str]:
    """Return the hash of each file; raises ValueError for what sha256sum would not take."""
    digests = {}
    for line in document.split(b"\n"):
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            message = f"{line[:80]!r} is no line of sha256sum"
            raise ValueError(message)
        name = match[3]
        if match[1]:
            name = re.sub(rb"\\[\\nr]", lambda found: _ESCAPES[found[0]], name)
        digests[os.fsdecode(name)] = match[2].decode()
    return digests
