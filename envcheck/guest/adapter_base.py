"""The base model that an adapter names, where its weights lie on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.artefacts import Marked
from envcheck.guest import safetensors
from envcheck.guest.adapter_targets import ends_with
from envcheck.guest.reading import open_regular

# Marks: modules that the base lacks; settings that name what it has and the file has not.
ABSENT, UNSAVED, UNTUNED = "not-in-base", "not-saved", "not-tuned"

_MAX_NAMES = 64


def compare(
    path: str, settings: Mapping[str, Any], modules: Sequence[str], saved: Sequence[str]
) -> tuple[str | None, tuple[Marked, ...]]:
    """Return the base's folder and how it differs; None where none on this machine is named.

    `modules` are those with LoRA weights, `saved` those with weights of their own in the file.
    """
    named = settings.get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        return None, ()
    # A relative name is one of the folder that the job starts in, or of the adapter's.
    for folder in (named, os.path.join(os.path.dirname(path), named)):
        weights = _keys(folder)
        if weights:
            known = {key.rpartition(".")[0] for key in weights}
            return folder, tuple(_differences(settings, modules, saved, known))
    return None, ()


def _differences(
    settings: Mapping[str, Any], modules: Sequence[str], saved: Sequence[str], known: set[str]
) -> Iterator[Marked]:
    missing = _missing(modules, known)
    if missing:
        yield Marked(mark=ABSENT, count=len(missing), example=missing[0])
    names = [name for name in settings.get("modules_to_save") or () if isinstance(name, str)]
    unsaved = [n for n in names if _has(known, n) and not any(ends_with(s, [n]) for s in saved)]
    if unsaved:
        yield Marked(mark=UNSAVED, count=len(unsaved), example=unsaved[0])
    targets = settings.get("target_modules")
    names = [t for t in targets if isinstance(t, str)] if isinstance(targets, list) else []
    untuned = [n for n in names if _has(known, n) and not any(ends_with(m, [n]) for m in modules)]
    if untuned:
        yield Marked(mark=UNTUNED, count=len(untuned), example=untuned[0])


def _has(known: set[str], name: str) -> bool:
    return any(ends_with(module, [name]) for module in known)


def _missing(modules: Sequence[str], known: set[str]) -> list[str]:
    # Checkpoints and models differ in the first names: `h.0.attn` and `transformer.h.0.attn`.
    ends = {end for module in known for end in _ends(module)}
    missing = [m for m in modules if m not in ends and not any(e in known for e in _ends(m))]
    # Libraries rename modules when they load a checkpoint (transformers 5 joins experts), so a name
    # that is new tells nothing, unless it differs from a known one by the number of its layer.
    if len(missing) < len(modules) or any("experts" in m.split(".") for m in missing):
        shapes = {_unnumbered(end) for end in ends}
        missing = [m for m in missing if _unnumbered(m) in shapes]
    return missing


def _unnumbered(module: str) -> str:
    return ".".join("#" if name.isdecimal() else name for name in module.split("."))


def _ends(module: str) -> Iterator[str]:
    names = module.split(".")
    return (".".join(names[i:]) for i in range(min(len(names), _MAX_NAMES)))


def _keys(folder: str) -> set[str]:
    """Return the keys of a model's weights, from its index or its one file."""
    index = _indexed(os.path.join(folder, "model.safetensors.index.json"))
    if index:
        return index
    try:
        with open_regular(os.path.join(folder, "model.safetensors")) as handle:
            return set(safetensors.header(handle))
    except (OSError, ValueError, safetensors.Broken):
        return set()


def _indexed(path: str) -> set[str]:
    try:
        if not os.path.isfile(path):
            return set()
        with open_regular(path) as handle:
            data = json.loads(safetensors.exactly(handle, safetensors.MAX_HEADER))
        return set(data["weight_map"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()
