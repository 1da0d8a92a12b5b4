"""Entries of Triton's cache among the members of one archive, told together as in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from envcheck.core.device_file import Code
from envcheck.guest.triton_cache import ABSENT, STAGES, entry, parsed
from envcheck.recognised import Seen


class Members:
    """Keeps what may be of a cache until the archive ends: its metadata may come last."""

    def __init__(self) -> None:
        self._metadata: dict[str, Any] = {}
        self._groups: dict[str, Any] = {}
        self._stages: dict[str, list[tuple[str, list[Seen]]]] = {}

    def is_stage(self, name: str) -> bool:
        """Say whether a member may be a kernel's, by its name."""
        return name.endswith(STAGES)

    def metadata(self, name: str, raw: bytes) -> None:
        """Take the bytes of JSON, of which what no cache has is forgotten."""
        data = parsed(raw)
        folder, _, file = name.rpartition("/")
        if file.startswith("__grp__"):
            self._groups[f"{folder}/{file.removeprefix('__grp__')}"] = data
        elif not isinstance(data, dict) or "num_warps" in data:
            self._metadata[name] = data

    def stage(self, name: str, seen: list[Seen]) -> None:
        """Take what was read of a member that may be a kernel's."""
        self._stages.setdefault(os.path.splitext(name)[0], []).append((name, seen))

    def end(self) -> Iterator[Seen]:
        """Yield what each entry is, and the members that are of none as they were read."""
        for name, data in self._metadata.items():
            stem = name.removesuffix(".json")
            group = self._groups.get(name, ABSENT)
            if stem not in self._stages and group is ABSENT:
                continue
            made = entry(name, data, group=group, binary=partial(self._binary, stem))
            if made is not None:
                yield Seen(None, artefact=made)
                for _ in self._stages.pop(stem, ()):
                    yield Seen(None)
        for stages in self._stages.values():
            for _, seen in stages:
                yield from seen

    def _binary(self, stem: str) -> tuple[Code | None, str | None]:
        """Return the code of a kernel's cubin, and why it cannot be loaded."""
        name = f"{stem}.cubin"
        base = name.rpartition("/")[2]
        read = [seen for held, seen in self._stages.get(stem, ()) if held == name]
        files = [one.file for seen in read for one in seen if one.file is not None]
        if not files:
            return None, f"{base} is missing"
        code = next((c for part in files[0].containers for c in part.code), None)
        if files[0].problem is not None or files[0].format != "cubin":
            return None, f"{base} is cut off or damaged: {files[0].problem or files[0].skipped}"
        return code, None
