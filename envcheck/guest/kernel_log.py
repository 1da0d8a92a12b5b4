"""What the kernel's log says of NVIDIA's cards: lines with an Xid."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import time
from collections.abc import Iterator

from envcheck.core.managed import Xid
from envcheck.guest.forked import LIBC

KMSG = "/dev/kmsg"
# `NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.`
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)(?:, *(.*))?")
# Whose process it was is nobody's business, on a host that others use too.
_WHO = re.compile(r"\b(?:pid|name)=[^,]*(?:, *|$)")
_READ_ALL, _SIZE = 3, 10  # of syslog(2)
_RECORD = 1 << 13
"""More than a record of /dev/kmsg may have (CONSOLE_EXT_LOG_MAX)."""
_SECONDS = 2.0
"""A log that is written faster than it is read has no end."""
_MAX_TEXT = 200


def xids(path: str = KMSG) -> tuple[tuple[Xid, ...] | None, str]:
    """Return the Xids since the host was booted; None, and why, where no log can be read."""
    try:
        return find(_records(path)), ""
    except OSError as error:
        why = f"{path}: {error.strerror}"
    try:
        return find(_whole().splitlines()), ""
    except OSError as error:
        return None, f"{why}; syslog(2): {error.strerror}"


def find(lines: Iterator[str] | list[str]) -> tuple[Xid, ...]:
    """Return the Xids in lines of a log, each number of a card once."""
    found: dict[tuple[str, int], Xid] = {}
    for line in lines:
        match = _XID.search(line)
        if match is None:
            continue
        bus, number = match[1].lower(), int(match[2])
        known = found.get((bus, number))
        said = known.text if known else _WHO.sub("", match[3] or "").strip()[:_MAX_TEXT]
        count = known.count + 1 if known is not None else 1
        found[bus, number] = Xid(bus=bus, number=number, text=said, count=count)
    return tuple(found.values())


def _records(path: str) -> Iterator[str]:
    """Yield what the kernel's log holds now; raises OSError where it cannot be read."""
    until = time.monotonic() + _SECONDS
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while time.monotonic() < until:
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten meanwhile: the next read goes on
                    continue
                raise
            if not record:
                return
            yield from record.decode("utf-8", "replace").splitlines()
    finally:
        os.close(descriptor)


def _whole() -> str:
    """Return the log by syslog(2), for where there is no such node; raises OSError."""
    klogctl = ctypes.CDLL(None, use_errno=True).klogctl if hasattr(LIBC, "klogctl") else None
    if klogctl is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    size = klogctl(_SIZE, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 1))
    length = klogctl(_READ_ALL, buffer, len(buffer))
    if size < 0 or length < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return buffer.raw[:length].decode("utf-8", "replace")
