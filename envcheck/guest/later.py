"""The value of a function that is computed in a thread while something else goes on."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Later(Thread, Generic[_T]):
    """A thread that ends with a value; it must start no process.

    As a context it is over when that is left. What nobody started works when it is asked.
    """

    def __init__(self, work: Callable[[], _T]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._values: list[_T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the work; what is raised is kept for whoever waits."""
        try:
            self._values.append(self._work())
        except BaseException as error:  # noqa: BLE001 - see above
            self._error = error

    def value(self) -> _T:
        """Wait for it; raises what the work raised."""
        if self.ident is None:
            self.run()
        self._wait()
        if self._error is not None:
            raise self._error
        return self._values[0]

    def _wait(self) -> None:
        if self.ident is not None:
            self.join()

    def __enter__(self) -> Later[_T]:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()
