"""A stream of pieces, as libraries for HTTP hand it over, read like a file."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO, cast


class _Stream(io.RawIOBase):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        parts: list[memoryview] = []
        while size:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
                continue
            part = self._rest if size < 0 else self._rest[:size]
            self._rest = self._rest[len(part) :]
            parts.append(part)
            size -= len(part) if size > 0 else 0
        return b"".join(parts)


@contextmanager
def as_file(pieces: Iterator[bytes]) -> Iterator[IO[bytes]]:
    """Return a file that can only be read on; it holds one piece at a time.

    At the end the connection is closed, read to its end or not: as long as it is open, an
    engine waits, and would not remove the container that it is sending.
    """
    try:
        # A generator that was never asked for anything would not close what it reads from.
        first = next(pieces, b"")
        yield cast("IO[bytes]", _Stream(chain((first,), pieces)))
    finally:
        if isinstance(pieces, Generator):
            pieces.close()
