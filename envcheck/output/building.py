"""How a build goes, on stderr: what is running now on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from envcheck.output.visible import visible

_NAMES = {
    "packages.sh c++": "C++ compiler",
    "packages.sh c": "C compiler",
    "environment.py": "locked packages",
    "toolchain.py": "nvcc",
    "extensions.py": "extensions",
    "final.py": "finish",
}
_ENDED = ("done", "cached", "failed")


class BuildStep(Protocol):
    """One step of a build, as an engine tells it."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def seconds(self) -> float | None: ...  # noqa: D102
    @property
    def line(self) -> str: ...  # noqa: D102


class Shown(Protocol):
    """What a command tells of a build."""

    def step(self, step: BuildStep) -> None:
        """Say where one step is."""

    def phase(self, text: str) -> None:
        """Say what begins now."""

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""


class _Silent:
    def step(self, step: BuildStep) -> None:
        pass

    def phase(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass


class _Plain:
    """One line for each step that ended, so that a log can be read."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def step(self, step: BuildStep) -> None:
        if step.state in _ENDED and (step.id, step.name) not in self._told:
            self._told.add((step.id, step.name))
            if is_work(step.name):
                self.note(ended(step))

    def phase(self, text: str) -> None:
        self._told.clear()
        self.note(text)

    def note(self, text: str) -> None:
        print(f"envcheck: {visible(text)}", file=sys.stderr, flush=True)


@contextmanager
def build(*, quiet: bool) -> Iterator[Shown]:
    """Show a build while the block runs."""
    if quiet:
        yield _Silent()
        return
    if not sys.stderr.isatty():
        yield _Plain()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = Console(stderr=True, highlight=False)

    class _Live:
        """Steps that ended stay above; below stands what is running, and its last line."""

        def __init__(self) -> None:
            self._told: set[tuple[str, str]] = set()
            self._started = time.monotonic()
            self._what, self._line = "", ""
            self._spinner = Spinner("dots")

        def render(self) -> Spinner:
            """Draw what is running; called whenever the screen is refreshed."""
            spent = f"{time.monotonic() - self._started:4.0f} s  {self._what}"
            text = Text.assemble(spent, "  ", (self._line, "dim"))
            text.truncate(max(20, console.width - 4), overflow="ellipsis")
            self._spinner.update(text=text)
            return self._spinner

        def step(self, step: BuildStep) -> None:
            if step.state in _ENDED:
                if (step.id, step.name) not in self._told and is_work(step.name):
                    style = {"failed": "red", "cached": "dim"}.get(step.state, "")
                    console.print(Text(f"  {ended(step)}", style=style))
                self._told.add((step.id, step.name))
            elif is_work(step.name):
                self._what = short(step.name)
            self._line = visible(step.line)

        def phase(self, text: str) -> None:
            self._told.clear()
            self._what, self._line, self._started = text, "", time.monotonic()
            console.print(Text(visible(text), style="bold"))

        def note(self, text: str) -> None:
            console.print(Text(visible(text)))

    shown = _Live()
    with Live(get_renderable=shown.render, console=console, transient=True):
        yield shown


def is_work(name: str) -> bool:
    """Say whether a step is of the build itself, and not the engine's own bookkeeping."""
    return not name.startswith(("[internal]", "[lock", "[sources", "exporting", "copy "))


def short(name: str) -> str:
    """Return a name for a step that fits into a line."""
    stage = re.match(r"\[(?P<stage>\w+)[^\]]*\] ?(?P<what>.*)", name, re.DOTALL)
    if stage is None:
        return visible(name)[:80]
    what = next((text for key, text in _NAMES.items() if name.endswith(key)), stage["what"])
    return f"{stage['stage']}: {visible(what)[:60]}"


def ended(step: BuildStep) -> str:
    """Return the line about a step that ended."""
    spent = f" {step.seconds:.1f} s" if step.seconds else ""
    return f"{short(step.name)}: {step.state}{spent}"


def spent(seconds: Mapping[str, float]) -> str:
    """Return how long each part took, in words, without those that took no time."""
    return ", ".join(f"{name} {time:.1f} s" for name, time in seconds.items() if time >= 0.05)
