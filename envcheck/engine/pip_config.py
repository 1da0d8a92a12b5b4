"""The index that pip is configured for: as variables for uv, and kept out of what is written."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from envcheck.errors import UsageError

# What the user's own environment may say of indexes, and pip's configuration replaces.
_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


def variables(pip_config: Path | None, ca_file: Path | None) -> dict[str, str]:
    """Return the environment for uv; raises UsageError for what is no pip configuration.

    `index-url`, `extra-index-url` and `cert` are taken; `ca_file` goes before `cert`. Without
    `pip_config` the index is the one that uv itself is configured for.
    """
    made = dict(os.environ)
    options = {} if pip_config is None else _options(pip_config)
    if {"index-url", "extra-index-url"} & options.keys():
        made = {name: value for name, value in made.items() if name not in _INDEXES}
    if "index-url" in options:
        made["UV_DEFAULT_INDEX"] = options["index-url"]
    if "extra-index-url" in options:
        made["UV_INDEX"] = " ".join(options["extra-index-url"].split())
    certificates = options.get("cert") if ca_file is None else str(ca_file)
    if certificates is not None:
        made["SSL_CERT_FILE"] = os.path.abspath(os.path.expanduser(certificates))
    return made


def without_credentials(text: str) -> str:
    """Return the text with nothing before the host of each address in it."""
    return re.sub(r"://[^/\s]*@", "://", text)


def hider(pip_config: Path | None) -> Callable[[str], str]:
    """Return a function that takes the hosts which a pip configuration names out of a text.

    pip tells where it looks; a log is handed on, and the name of a mirror is nobody's business.
    """
    try:
        text = "" if pip_config is None else pip_config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""  # who uses the file says what is wrong with it
    places = set(re.findall(r"://(?:[^/\s]*@)?([^/\s?#]+)", text))
    names = places | {re.sub(r":\d+$", "", place) for place in places}
    if not names:
        return lambda line: line
    longest = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.-])(?:{longest})(?![\w-])", re.IGNORECASE)
    return lambda line: pattern.sub("(index)", line)


def _options(path: Path) -> dict[str, str]:
    """Return what pip would read for `install`, whose section goes before `global`."""
    # Passwords in addresses hold %, which pip does not interpolate either.
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise UsageError(message, remedy="name a pip configuration that is there") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        # The parser's own message repeats the line, which may hold a password.
        message = f"{path}: is no pip configuration: {type(error).__name__}{_line(error)}"
        raise UsageError(message, remedy="[global], and below it index-url = ...") from None
    sections = [dict(parser[name]) for name in ("global", "install") if parser.has_section(name)]
    return {name: value for section in sections for name, value in _normal(section) if value}


def _normal(section: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in section.items():
        yield name.lower().replace("_", "-").removeprefix("--"), value.strip()


def _line(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    number = errors[0][0] if errors else getattr(error, "lineno", None)
    return "" if number is None else f" in line {number}"
