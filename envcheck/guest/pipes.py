"""What a child writes: read as it comes, of which the first and the last lines are kept."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable

from envcheck.guest import forked

_HEAD_BYTES, _TAIL_BYTES = 1 << 13, 1 << 14
_HEAD_LINES, _TAIL_LINES, _LINE = 10, 20, 500
# How `faulthandler` writes a frame, and the one below which a child's own work begins.
_FRAME, _LAST_FRAME = re.compile(r'  File ".*", line \S+ in '), f'"{forked.__file__}", line '


class Stream:
    """One pipe from a child: reads all of it, keeps its first and last bytes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)
        self.head, self.tail, self.cut, self.closed = b"", b"", False, False

    def read(self) -> bool:
        """Read what is there; False when there is no more now."""
        try:
            chunk = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self.closed = True
            return False
        room = _HEAD_BYTES - len(self.head)
        self.head += chunk[:room]
        self.tail += chunk[room:]
        if len(self.tail) > _TAIL_BYTES:
            self.tail, self.cut = self.tail[-_TAIL_BYTES:], True
        return True

    def drain(self) -> None:
        """Read the rest, a bounded part of it: a process that got away may still write."""
        for _ in range(1000):
            if not self.read():
                return

    def lines(self) -> tuple[str, ...]:
        """Return the lines that were kept; `...` stands for those that were not."""
        if self.cut:
            head, tail = self.head.splitlines(), self.tail.splitlines()[1:]
            kept = [*told(head)[:_HEAD_LINES], "...", *told(tail)[-_TAIL_LINES:]]
        else:
            kept = told((self.head + self.tail).splitlines())
            if len(kept) > _HEAD_LINES + _TAIL_LINES + 1:
                kept = [*kept[:_HEAD_LINES], "...", *kept[-_TAIL_LINES:]]
        return tuple(kept)


def told(lines: Iterable[bytes]) -> list[str]:
    """Return lines as text, those that repeat once, without the parent's part of a stack."""
    told: list[str] = []
    of_parent = False
    for line, same in itertools.groupby(lines):
        text = line.decode("utf-8", "backslashreplace")[:_LINE].rstrip()
        of_parent = _FRAME.match(text) is not None and (of_parent or _LAST_FRAME in text)
        if not of_parent:
            told.append(text)
            more = sum(1 for _ in same) - 1
            if more:
                told.append(f"... ({more} more)")
    return told
