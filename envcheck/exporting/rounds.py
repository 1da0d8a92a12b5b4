"""One export after another beside a job, and a last one when it has ended.

Times are waited for, never read from a clock, so that nobody who sets it moves an export.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from envcheck.exporting import digests, looking, writers
from envcheck.exporting.folder import ASIDE
from envcheck.exporting.looking import Look, Stamp
from envcheck.exporting.target import CHANGED, Target

SETTLE = 0.5
"""Seconds between the two looks of a round: what is another one in the second is not finished."""
_NAMED = 5
_BUSY = "it is still written to"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What a round has to tell."""

    told: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Exporter:
    """Exports in a thread of its own; whatever goes wrong there is told, and ends nothing."""

    def __init__(
        self, source: str, target: Target, every: float, tell: Callable[[Lines], None]
    ) -> None:
        self._source = source
        self._target = target
        self._every = every
        self._tell = tell
        self._now, self._over, self._cancelled = (threading.Event() for _ in range(3))
        self._passed_over: dict[str, str] = {}
        self._thread = threading.Thread(target=self._work, name="export", daemon=True)
        self.failed = True
        """Whether the last round did not bring everything there; nothing is there before it."""

    def start(self) -> None:
        """Begin to count the first interval."""
        self._thread.start()

    def hurry(self) -> None:
        """Export at once: the job may not have long to live."""
        self._now.set()

    def finish(self) -> None:
        """Export for the last time: the job is over."""
        self._over.set()
        self._now.set()

    def cancel(self) -> None:
        """End the last export before it is done."""
        self._cancelled.set()

    def done(self, seconds: float) -> bool:
        """Wait for the last export; say whether it is done."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._over.is_set():
            self._now.wait(self._every)
            self._now.clear()
            if not self._over.is_set():
                self._round(last=False)
        self._round(last=True)

    def _round(self, *, last: bool) -> None:
        try:
            failed = self._export(last=last)
        except Exception as error:  # noqa: BLE001 - one broken round must not end the others
            what = getattr(error, "strerror", None) or error
            self._tell(Lines(errors=(f"{self._source}: {type(error).__name__}: {what}",)))
            failed = True
        self.failed = failed

    def _export(self, *, last: bool) -> bool:
        """Look twice, bring what is finished there, and tell; say whether something failed."""
        own = (digests.NAME, ASIDE)
        before = looking.look(self._source, own)
        self._cancelled.wait(SETTLE)
        now = looking.look(self._source, own)
        files = _finished(before, now)
        delivery = self._target.deliver(self._source, files, self._cancelled.is_set)
        busy = dict.fromkeys(now.files.keys() - files.keys(), _BUSY)
        busy |= {path: why for path, why in delivery.failed.items() if why == CHANGED}
        failed = {**now.unread, **{p: w for p, w in delivery.failed.items() if p not in busy}}
        failed |= busy if last else {}
        told = []
        if delivery.copied:
            told.append(f"{delivery.copied} file(s), {delivery.size} bytes -> {self._target.name}")
        if busy and not last:
            told.append(f"not finished yet: {_names(busy)}")
        told += self._left_out(now)
        self._tell(Lines(told=tuple(told), errors=tuple(_errors(failed))))
        return bool(failed)

    def _left_out(self, now: Look) -> Iterable[str]:
        """Yield what is never copied, each once."""
        new = now.passed_over.items() - self._passed_over.items()
        self._passed_over = dict(now.passed_over)
        for why in sorted({why for _, why in new}):
            yield f"left out ({why}): {_names(path for path, each in new if each == why)}"


def _finished(before: Look, now: Look) -> Mapping[str, Stamp]:
    """Return the files that are the same in both looks, and that nobody can be writing to."""
    same = {path: stamp for path, stamp in now.files.items() if before.files.get(path) == stamp}
    busy = writers.written_to({(stamp.device, stamp.inode) for stamp in same.values()})
    return {p: stamp for p, stamp in same.items() if (stamp.device, stamp.inode) not in busy}


def _errors(failed: Mapping[str, str]) -> Iterable[str]:
    for path, why in list(failed.items())[:_NAMED]:
        yield f"{path}: {why}" if path else why
    if len(failed) > _NAMED:
        yield f"and {len(failed) - _NAMED} more files were not exported"


def _names(paths: Iterable[str]) -> str:
    names = sorted(paths)
    more = f" (and {len(names) - _NAMED} more)" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
