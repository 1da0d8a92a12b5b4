"""Seconds, by what they were spent on: what a check costs over the operations themselves."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator


class Spent:
    """Adds up seconds under names."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @contextlib.contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Count the time of a block, however it ends."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - started  # type: ignore[assignment]

    def rounded(self) -> dict[str, float]:
        """Return the seconds, to the tenth of a millisecond."""
        return {name: round(seconds, 4) for name, seconds in self.seconds.items()}
