"""Locks that users bring: what they pin, read before anything is fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from envcheck.core.cuda import Version, parse_version
from envcheck.errors import FileUnavailable, UsageError

_WRITE_ONE = (
    "uv pip compile --generate-hashes, or pip-compile --generate-hashes, writes such a lock"
)
# They say how pip is to choose, not where it fetches: an address may hold a password.
_HARMLESS = ("--only-binary", "--no-binary", "--prefer-binary", "--pre")
_PIN = re.compile(
    r"(?P<name>[\w.-]+)\s*(\[[^\]]*\])?\s*===?\s*(?P<version>[\w.+!-]+)\s*(;(?P<when>.*))?"
)
_PYTHONS = range(10, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One requirement of a lock."""

    name: str
    version: str
    line: int
    """From 1."""


def read(path: Path) -> tuple[Pin, ...]:
    """Return the pins that may hold on Linux.

    Raises FileUnavailable for a file that cannot be read, UsageError that names the line for
    one that is no lock with hashes.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"{path}: lock cannot be read: {error.strerror}"
        raise FileUnavailable(message, remedy="name a file that is there") from None
    except UnicodeDecodeError:
        message = f"{path}: is no lock: not a text in UTF-8"
        raise UsageError(message, remedy=_WRITE_ONE) from None
    pins = []
    for number, line in _requirements(text):
        if line.startswith(_HARMLESS):
            continue
        pin = _pin(f"{path}:{number}", number, line)
        if pin is not None:
            pins.append(pin)
    return tuple(pins)


def torch(path: Path, pins: tuple[Pin, ...]) -> str:
    """Return the version of torch that a lock pins; raises UsageError unless there is one."""
    pin = _single(path, pins, "torch")
    if pin is None:
        message = f"{path}: pins no torch in its {len(pins)} packages"
        raise UsageError(message, remedy="lock torch with everything that it needs")
    return pin.version


def cuda(path: Path, pins: tuple[Pin, ...]) -> str:
    """Return the CUDA that a lock brings as `12.8`; raises UsageError where it brings none."""
    runtimes = [p.name for p in pins if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", p.name)]
    for name in ("cuda-toolkit", *dict.fromkeys(runtimes)):
        pin = _single(path, pins, name)
        version = _major_minor(pin.version) if pin is not None else None
        if version is not None:
            return f"{version[0]}.{version[1]}"
    # torch's own index says it in the version, and some of its wheels hold the libraries.
    pin = _single(path, pins, "torch")
    local = re.search(r"\+cu(\d+)(\d)$", pin.version) if pin is not None else None
    if local is not None:
        return f"{local[1]}.{local[2]}"
    where = f"{path}:{pin.line}" if pin is not None else str(path)
    message = f"{where}: no CUDA runtime is pinned beside torch: a build without CUDA"
    raise UsageError(message, remedy="lock a torch that is built for CUDA")


def _requirements(text: str) -> list[tuple[int, str]]:
    """Return each requirement with all its hashes on one line, and the line where it begins."""
    found: list[tuple[int, str]] = []
    goes_on = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        part = line.removesuffix("\\").strip()
        if goes_on and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {part}")
        elif part:
            found.append((number, part))
        goes_on = line.endswith("\\")
    return found


def _pin(where: str, number: int, line: str) -> Pin | None:
    """Read one requirement; None for one that never holds on Linux."""
    if line.startswith("-"):
        message = (
            f"{where}: {line.split(maxsplit=1)[0].partition('=')[0]} does not belong into a lock"
        )
        raise UsageError(message, remedy="--pip-config says where packages come from")
    what, *hashes = re.split(r"\s+--hash[= ]", line)
    match = _PIN.fullmatch(what.strip())
    if match is None:
        message = f"{where}: {what.split()[0]} is not pinned with NAME==VERSION"
        raise UsageError(message, remedy=_WRITE_ONE)
    if not hashes:
        message = f"{where}: {match['name']}=={match['version']} has no hash"
        raise UsageError(message, remedy=_WRITE_ONE)
    try:
        holds = match["when"] is None or _may_hold(Marker(match["when"]))
    except InvalidMarker:
        message = f"{where}: {match['when'].strip()!r} is no marker"
        raise UsageError(message, remedy=_WRITE_ONE) from None
    name = canonicalize_name(match["name"])
    return Pin(name=name, version=match["version"], line=number) if holds else None


def _may_hold(marker: Marker) -> bool:
    """Say whether a marker holds on Linux for some Python: the base's is not known here."""
    return any(
        marker.evaluate(
            {
                "os_name": "posix",
                "sys_platform": "linux",
                "platform_system": "Linux",
                "python_version": f"3.{minor}",
                "python_full_version": f"3.{minor}.5",
            }
        )
        for minor in _PYTHONS
    )


def _single(path: Path, pins: tuple[Pin, ...], name: str) -> Pin | None:
    """Return the pin of a package; raises UsageError where several versions may hold."""
    found = [pin for pin in pins if pin.name == name]
    if len({pin.version for pin in found}) > 1:
        versions = ", ".join(dict.fromkeys(pin.version for pin in found))
        message = f"{path}:{found[1].line}: {name} is pinned several times: {versions}"
        raise UsageError(message, remedy="lock for one Python: uv pip compile --python-version")
    return found[0] if found else None


def _major_minor(text: str) -> Version | None:
    match = re.match(r"\d+\.\d+", text)
    return parse_version(match[0]) if match is not None else None
