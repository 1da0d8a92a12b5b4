"""PEFT's adapter_config.json: the settings in it that are looked at."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from envcheck.core.adapter_settings import READ
from envcheck.guest.reading import open_regular
from envcheck.guest.safetensors import POINTER, exactly

NAME = "adapter_config.json"
_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Config:
    """What the file says; `settings` is None where it says nothing that can be read."""

    settings: dict[str, Any] | None
    problem: str | None = None


def beside(path: str) -> Config:
    """Read the file beside an adapter; why there is none is its problem."""
    place = os.path.join(os.path.dirname(path), NAME)
    try:
        if not os.path.isfile(place):
            why = "is not a file" if os.path.lexists(place) else "is missing"
            return Config(None, f"{NAME} {why}")
        with open_regular(place) as handle:
            text = exactly(handle, _MAX + 1)
    except OSError as error:
        return Config(None, f"{NAME} cannot be read: {error.strerror}")
    if text.startswith(POINTER):
        return Config(None, f"{NAME} is a pointer of Git LFS, and not the file")
    if len(text) > _MAX:
        return Config(None, f"{NAME} is larger than {_MAX} bytes")
    try:
        data = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return Config(None, f"{NAME} is not JSON")
    if not isinstance(data, dict):
        return Config(None, f"{NAME} is not a JSON object")
    return Config({key: data[key] for key in READ if key in data})
