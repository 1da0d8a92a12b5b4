"""A process that imports what its operations need while others run, and waits for its turn.

Extensions take seconds to import, which is no use of the card: several do it at a time, but
only one at a time runs anything.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Sequence

from envcheck.guest import trial
from envcheck.guest.journal import Journal
from envcheck.guest.measuring import Task

Run = Callable[[Sequence[Task], Journal], None]
"""Runs tasks in a child of its own."""


class Ahead:
    """The process of some tasks, from its imports to its end."""

    def __init__(self, tasks: Sequence[Task], run: Run, file: str, *, deadline: float) -> None:
        self.tasks, self.journal = tasks, Journal(file)
        turn, self._give = os.pipe()

        def work() -> None:
            for name in dict.fromkeys(task.op.family for task in tasks):
                with contextlib.suppress(Exception):  # the first operation meets it again
                    importlib.import_module(name)
            os.read(turn, 1)
            run(tasks, self.journal)

        self._process = trial.Aside(work, deadline=deadline)
        os.close(turn)

    def take_turn(self, seconds: float) -> trial.Trial:
        """Let it run, for so long at most; it may have ended by what it imported."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._give, b".")
        return self._end(seconds)

    def leave(self) -> None:
        """End it, whose turn does not come any more."""
        self._end(0)

    def _end(self, seconds: float) -> trial.Trial:
        os.close(self._give)
        return self._process.wait(seconds)
