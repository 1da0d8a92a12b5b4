"""The plain progress of BuildKit: which step is where, and why a build failed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from envcheck.engine import faults
from envcheck.engine.protocol import Step
from envcheck.errors import EnvcheckError

_KEPT = 600
_LINE = re.compile(r"^#(?P<id>\d+) (?P<rest>.*)$")
_STATE = re.compile(r"^(DONE (?P<seconds>[\d.]+)s|CACHED|ERROR:? .*|CANCELED)$")
_SAID = re.compile(r"^\d+\.\d+ (?P<text>.*)$")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def clean(line: str) -> str:
    """Return a line of the log without credentials and control characters."""
    return _CREDENTIALS.sub("***@", _ESCAPES.sub("", line))


class BuildLog:
    """Reads the lines of a build as they come."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._tail: deque[str] = deque(maxlen=_KEPT)

    def feed(self, line: str) -> Step | None:
        """Take one clean line; returns the step that it is about, None for any other line."""
        self._tail.append(line)
        match = _LINE.match(line)
        if match is None:
            return None
        number, rest = match["id"], match["rest"].strip()
        step = self._steps.get(number)
        if step is None:
            step = Step(id=number, name=rest, state="running")
        elif state := _STATE.match(rest):
            step = replace(step, state=_state(rest), seconds=_seconds(state["seconds"]), line="")
        else:
            said = _SAID.match(rest)
            step = replace(step, line=said["text"] if said is not None else "")
        self._steps[number] = step
        return step

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step once, in the order in which they began."""
        return tuple(replace(step, line="") for step in self._steps.values())

    def failure(self, log: str) -> EnvcheckError:
        """Return the error for a build that ended badly; `log` is where its full log lies."""
        return faults.explain([_said(line) for line in self._tail], faults.IMAGE, log)


def _state(rest: str) -> str:
    word = rest.split(" ", 1)[0].rstrip(":")
    return {"DONE": "done", "CACHED": "cached"}.get(word, "failed")


def _seconds(text: str | None) -> float | None:
    return float(text) if text else None


def _said(line: str) -> str:
    """Return what a step said, without its number and time."""
    match = _LINE.match(line)
    rest = match["rest"] if match is not None else line
    said = _SAID.match(rest)
    return said["text"] if said is not None else rest


def phases(steps: tuple[Step, ...]) -> Iterator[tuple[str, float]]:
    """Yield each stage of a build and the seconds that its steps took."""
    totals: dict[str, float] = {}
    for step in steps:
        match = re.match(r"\[(?P<stage>[a-z]+)[\] ]", step.name)
        stage = match["stage"] if match is not None and match["stage"] != "internal" else "engine"
        totals[stage] = totals.get(stage, 0.0) + (step.seconds or 0.0)
    yield from totals.items()
