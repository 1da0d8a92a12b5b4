"""A table of the user's own TOML: every mistake is named with its file, key and remedy."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from envcheck import meant
from envcheck.errors import FileUnavailable, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KINDS: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    list: "an array",
    dict: "a table",
}
_WRITTEN: dict[type, str] = {str: '{} = "..."', list: '{} = ["..."]', dict: "[{}]"}


def read(file: Path) -> dict[str, Any]:
    """Parse a TOML file; raises UsageError that names the line, FileUnavailable without one."""
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        message = f"{file}: {error.strerror}"
        raise FileUnavailable(message, remedy="name a file that is there") from None
    except UnicodeDecodeError as error:
        message = f"{file}: not valid TOML: byte {error.start} is no UTF-8"
        raise UsageError(message, remedy="save the file as UTF-8") from None
    except RecursionError:
        message = f"{file}: not valid TOML: nested too deeply"
        raise UsageError(message, remedy="a configuration is flat: see README") from None
    except tomllib.TOMLDecodeError as error:
        last = f"at line {text.count(chr(10)) + 1}, the end of the file"
        reason = str(error).replace("at end of document", last)
        message = f"{file}: not valid TOML: {reason}"
        raise UsageError(message, remedy="correct that line (https://toml.io)") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table and where it stands; what its methods return has been looked at."""

    file: Path
    path: str
    """`extensions[0]`; empty for the whole file."""
    data: Mapping[str, Any]

    def refuse(self, key: str, reason: str, *, remedy: str = "") -> NoReturn:
        """Raise the UsageError of one key."""
        message = f"{self.file}: {self._where(key)}: {reason}"
        raise UsageError(message, remedy=remedy)

    def require_known(self, known: Iterable[str]) -> None:
        """Raise UsageError for a key that is none of these, with the one that is meant."""
        names = list(known)
        for key in self.data:
            if key not in names:
                remedy = f"known here: {', '.join(names)}"
                self.refuse(key, f"unknown key{meant.question(key, names)}", remedy=remedy)

    def text(self, key: str) -> str | None:
        """Return a string that is not empty, None without the key; raises UsageError."""
        if key not in self.data:
            return None
        return self._text(key, self.data[key])

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of such strings; raises UsageError."""
        items = enumerate(self._array(key))
        return tuple(self._text(f"{key}[{number}]", item) for number, item in items)

    def table(self, key: str) -> Table | None:
        """Return the table of a key, None without it; raises UsageError."""
        if key not in self.data:
            return None
        self._expect(dict, key, self.data[key])
        return Table(file=self.file, path=self._where(key), data=self.data[key])

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return an array of tables; raises UsageError."""
        made = []
        remedy = f"write [[{self._where(key)}]]"
        for number, item in enumerate(self._array(key, remedy=remedy)):
            name = f"{key}[{number}]"
            self._expect(dict, name, item, remedy=remedy)
            made.append(Table(file=self.file, path=self._where(name), data=item))
        return tuple(made)

    def existing_file(self, key: str) -> Path | None:
        """Return a file, relative to the folder of the TOML; raises UsageError without it."""
        value = self.text(key)
        if value is None:
            return None
        found = self._below(value)
        if not found.is_file():
            self._refuse_path(key, value, "file")
        return found

    def existing_folder(self, key: str) -> Path | None:
        """Return a folder, relative to the folder of the TOML; raises UsageError without it."""
        value = self.text(key)
        return None if value is None else self._folder(key, value)

    def existing_folders(self, key: str) -> tuple[Path, ...]:
        """Return an array of such folders; raises UsageError."""
        values = enumerate(self.texts(key))
        return tuple(self._folder(f"{key}[{number}]", value) for number, value in values)

    def _folder(self, key: str, value: str) -> Path:
        found = self._below(value)
        if not found.is_dir():
            self._refuse_path(key, value, "folder")
        return found

    def _below(self, value: str) -> Path:
        return self.file.parent / os.path.expanduser(value)

    def _refuse_path(self, key: str, value: str, kind: str) -> NoReturn:
        there = self._below(value).exists()
        reason = f"{value}: is no {kind}" if there else f"{value}: no such {kind}"
        folder = self.file.parent.resolve()
        self.refuse(key, reason, remedy=f"name a {kind}, relative to {folder}")

    def _text(self, key: str, value: object) -> str:
        self._expect(str, key, value)
        text = str(value)
        if not text.strip() or "\0" in text:
            reason = "holds a NUL" if text.strip() else "empty"
            self.refuse(key, reason, remedy=f"leave {key} out, or give it a value")
        return text

    def _array(self, key: str, *, remedy: str = "") -> list[Any]:
        value = self.data.get(key, [])
        self._expect(list, key, value, remedy=remedy)
        return list(value)

    def _expect(self, kind: type, key: str, value: object, *, remedy: str = "") -> None:
        if type(value) is not kind:
            got = _KINDS.get(type(value), "a date or time")
            name, in_array, _ = key.partition("[")
            if kind is dict:
                name = self._where(name)
            remedy = remedy or _WRITTEN[list if in_array else kind].format(name)
            self.refuse(key, f"expected {_KINDS[kind]}, got {got}", remedy=remedy)

    def _where(self, key: str) -> str:
        plain = re.fullmatch(r"[\w-]+(\[\d+\])?", key, re.ASCII)
        word = key if plain else json.dumps(key)
        return f"{self.path}.{word}" if self.path else word
