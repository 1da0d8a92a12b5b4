"""The weights of a base model in a folder: their names, their shapes, and what its config says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envcheck.guest import safetensors
from envcheck.guest.reading import open_regular
from envcheck.guest.safetensors import Tensor

_INDEX, _ONE, _CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
_FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
# transformers renames the weights of models made of several (`model.layers` becomes
# `model.language_model.layers`) when it loads them.
_PARTS = ("text_config", "vision_config", "audio_config", "thinker_config")
_MAX_SHARDS = 1024


@dataclass(frozen=True, slots=True)
class Base:
    """What is known of a base model without loading it."""

    folder: str
    names: frozenset[str]
    """The modules that have weights."""
    shapes: Mapping[str, tuple[int, ...]]
    """The shape of `weight` of each module; none where `unsized` says why."""
    unsized: str | None
    composite: bool
    """Whether it is made of several models."""
    kind: str | None
    """Its `model_type`."""


def read(folder: str) -> Base | None:
    """Read what a folder says of a model, None where it has no safetensors weights to be read."""
    keys, files = _named(folder)
    if not keys:
        return None
    config = _json(os.path.join(folder, _CONFIG))
    kind = config.get("model_type")
    shapes, unsized = _shapes(folder, files)
    if config.get("quantization_config"):
        unsized = "its weights are quantised"
    return Base(
        folder=folder,
        names=frozenset(key.rpartition(".")[0] for key in keys),
        shapes={} if unsized else shapes,
        unsized=unsized,
        composite=any(isinstance(config.get(part), dict) for part in _PARTS),
        kind=kind if isinstance(kind, str) else None,
    )


def _named(folder: str) -> tuple[set[str], set[str]]:
    """Return the names of the tensors, and of the files that have them."""
    index = _json(os.path.join(folder, _INDEX)).get("weight_map")
    if isinstance(index, dict) and index:
        return set(index), {name for name in index.values() if isinstance(name, str)}
    try:
        return set(_header(os.path.join(folder, _ONE))), {_ONE}
    except (OSError, safetensors.Broken):
        return set(), set()


def _shapes(folder: str, files: set[str]) -> tuple[dict[str, tuple[int, ...]], str | None]:
    shapes: dict[str, tuple[int, ...]] = {}
    if len(files) > _MAX_SHARDS:
        return {}, f"it has more than {_MAX_SHARDS} files"
    for name in sorted(files):
        try:
            tensors = _header(os.path.join(folder, name))
        except (OSError, safetensors.Broken):
            return {}, f"{name[:100]} in it cannot be read"
        for key, tensor in tensors.items():
            module, _, last = key.rpartition(".")
            if last == "weight" and tensor.dtype in _FLOATS:
                shapes[module] = tensor.shape
    return shapes, None


def _header(path: str) -> dict[str, Tensor]:
    with open_regular(path) as handle:
        return safetensors.header(handle)


def _json(path: str) -> dict[str, Any]:
    """Return the object in a file, an empty one where there is none: neither file is required."""
    try:
        if not os.path.isfile(path):
            return {}
        with open_regular(path) as handle:
            data = json.loads(safetensors.exactly(handle, safetensors.MAX_HEADER))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
