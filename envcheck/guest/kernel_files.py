"""Read what the kernel tells in small files; what cannot be read is None."""

from __future__ import annotations

from envcheck.core.names import visible

_MOST = 1 << 20


def text(path: str) -> str | None:
    """Return what stands in a file without blanks around it; None where it cannot be read."""
    try:
        with open(path, "rb") as handle:
            data = handle.read(_MOST)
    except OSError:
        return None
    return visible(data.decode("utf-8", "surrogateescape")).strip()


def number(path: str) -> int | None:
    """Return the whole number in a file; None for `max`, other text, and what cannot be read."""
    said = text(path)
    return int(said) if said and said.lstrip("-").isdecimal() else None


def named(path: str) -> dict[str, str]:
    """Return `name: value` lines by name; of lines with equal names the first."""
    pairs: dict[str, str] = {}
    for line in (text(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            pairs.setdefault(name.strip(), value.strip())
    return pairs
