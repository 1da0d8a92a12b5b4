"""Lines of JSON in a file, which outlast the process that wrote them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import replace
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
        """Return all facts, runs and groups; those of one family, and all costs, added up."""
        facts: dict[str, Any] = {}
        groups: dict[str, Group] = {}
        spent: Counter[str] = Counter()
        for kind, value in (lines := self.lines()):
            if kind == "facts":
                facts |= value
            elif kind == "spent":
                spent.update(value)
            elif kind == "group":
                group = codec.from_json(Group, value, "group")
                old = groups.get(group.family)
                groups[group.family] = _added_up(old, group) if old else group
        if spent:
            facts["spent"] = {name: round(seconds, 3) for name, seconds in spent.items()}
        runs = tuple(codec.from_json(Run, v, "run") for k, v in lines if k == "run")
        return facts, runs, tuple(groups.values())


def _added_up(one: Group, other: Group) -> Group:
    return replace(
        one,
        seconds=round(one.seconds + other.seconds, 3),
        processes=one.processes + other.processes,
        warnings=tuple(dict.fromkeys((*one.warnings, *other.warnings))),
    )
