"""Lines of JSON in a file, which outlast the process that wrote them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from envcheck.core import codec
from envcheck.core.executed import Group, Run


class Journal:
    """Lines of JSON in a file: facts, runs, groups, and where a process has got to."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, kind: str, value: object) -> None:
        """Add one line, at once."""
        with open(self.path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps([kind, codec.to_json(value)]) + "\n")

    def lines(self) -> list[tuple[str, Any]]:
        """Return what is there; a last line that was cut off does not count."""
        found = []
        with contextlib.suppress(OSError), open(self.path, encoding="utf-8") as handle:
            for line in handle:
                with contextlib.suppress(ValueError):
                    kind, value = json.loads(line)
                    found.append((kind, value))
        return found

    def read(self) -> tuple[dict[str, Any], tuple[Run, ...], tuple[Group, ...]]:
        """Return all facts, runs and groups."""
        facts: dict[str, Any] = {}
        for kind, value in (lines := self.lines()):
            if kind == "facts":
                facts |= value
        runs = tuple(codec.from_json(Run, v, "run") for k, v in lines if k == "run")
        return facts, runs, tuple(codec.from_json(Group, v, "g") for k, v in lines if k == "group")
