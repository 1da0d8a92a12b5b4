"""What the words of the command line mean: times, sizes, versions."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from envcheck.errors import UsageError

if TYPE_CHECKING:
    from envcheck.core.cuda import Version
    from envcheck.core.model import Assurance

_LONGEST = 24 * 3600
_MANY = 10_000
_GPUS = re.compile(r"all|[1-9]\d*|\"?device=[\w-]+(,[\w-]+)*\"?")


def driver(text: str) -> Version:
    """Return the version of a driver."""
    from envcheck.core import cuda

    try:
        return cuda.parse_version(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def assurance(text: str) -> Assurance:
    """Return an assurance; raises UsageError."""
    from envcheck.core.model import Assurance

    try:
        return Assurance(text)
    except ValueError:
        known = ", ".join(each.value for each in Assurance)
        message = f"unknown assurance {text!r}: one of {known}"
        raise UsageError(message, remedy="--require compiled") from None


_DURATION = re.compile(r"(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")


def seconds(text: str) -> float:
    """Return the seconds of `20s` or `3m`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        message = f"{text!r} is no time such as 20s or 3m"
        raise argparse.ArgumentTypeError(message)
    seconds = 60 * int(match["m"] or 0) + float(match["s"] or 0)
    if not 0 < seconds <= _LONGEST:
        message = f"{text!r} is not between 1s and {_LONGEST // 60}m"
        raise argparse.ArgumentTypeError(message)
    return seconds


def gpus(text: str) -> str:
    """Return what docker run would take for --gpus, as far as cards go."""
    if not _GPUS.fullmatch(text):
        message = f"{text!r} names no cards: all, a number, or device=0,GPU-..."
        raise argparse.ArgumentTypeError(message)
    return text


def age(text: str) -> float:
    """Return the seconds of an age."""
    from envcheck import policy

    try:
        return policy.age(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def interval(text: str) -> float:
    """Return the seconds between two exports, one at least."""
    from envcheck import policy

    try:
        return policy.age(text)
    except ValueError:
        message = f"{text!r} is no time such as 90s, 30m or 2h, of 1s at least"
        raise argparse.ArgumentTypeError(message) from None


_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b?|b?)", re.IGNORECASE)


def size(text: str) -> int:
    """Return the bytes of `200GB` or `16GiB`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is no size such as 200GB or 16GiB"
        raise argparse.ArgumentTypeError(message)
    unit = match[2].upper().removesuffix("B")
    return int(float(match[1]) * _UNITS[f"{unit}B" if unit else ""])


def count(text: str) -> int:
    """Return a whole number from 1."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MANY:
        message = f"{text!r} is no number from 1 to {_MANY}"
        raise argparse.ArgumentTypeError(message)
    return int(text)
