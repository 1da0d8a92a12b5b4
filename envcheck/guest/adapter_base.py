"""How an adapter differs from the base model that it names, where that lies on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core.artefacts import Marked
from envcheck.guest import adapter_names, adapter_targets, base_weights
from envcheck.guest.adapter_keys import PREFIX, Keys
from envcheck.guest.adapter_names import Names
from envcheck.guest.adapter_targets import ends_with
from envcheck.guest.base_weights import Base

# Marks: modules that the base lacks, or has under other names; settings that name what it has and
# the file has not; tensors of another size, and with more or fewer rows alone.
ABSENT, PREFIXED, RENAMED = "not-in-base", "prefix-not-in-base", "name-not-in-base"
UNSAVED, UNTUNED = "not-saved", "not-tuned"
SIZED, RESIZED = "other-size", "other-rows"


Shape = tuple[int, ...]


def compare(
    path: str, settings: Mapping[str, Any], keys: Keys
) -> tuple[Base | None, tuple[Marked, ...]]:
    """Return the base and how the adapter differs; None where none on this machine is named."""
    named = settings.get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        return None, ()
    # A relative name is one of the folder that the job starts in, or of the adapter's.
    for folder in (named, os.path.join(os.path.dirname(path), named)):
        base = base_weights.read(folder)
        if base is not None:
            names = adapter_names.match(keys.modules, base, settings)
            return base, (*_differences(settings, keys, base, names), *_sizes(settings, keys, base))
    return None, ()


def _differences(
    settings: Mapping[str, Any], keys: Keys, base: Base, names: Names
) -> Iterator[Marked]:
    groups = {ABSENT: names.missing, PREFIXED: names.prefixed, RENAMED: names.renamed}
    wanted = [name for name in settings.get("modules_to_save") or () if isinstance(name, str)]
    saved = keys.whole
    groups[UNSAVED] = [
        n for n in wanted if _has(base, n) and not any(ends_with(s, [n]) for s in saved)
    ]
    groups[UNTUNED] = _untuned(settings, keys, base, names)
    for mark, found in groups.items():
        if found:
            yield Marked(mark=mark, count=len(found), example=found[0][:300])


def _untuned(settings: Mapping[str, Any], keys: Keys, base: Base, names: Names) -> list[str]:
    """Return what target_modules names and only the base has: of every layer, and of some."""
    targets = settings.get("target_modules")
    if not isinstance(targets, list):
        return []
    found = [
        n for n in targets if _has(base, n) and not any(ends_with(m, [n]) for m in keys.modules)
    ]
    alike = {adapter_names.unnumbered(name) for name in names.known.values()}
    tuned = set(names.known.values())
    rest = sorted(n for n in base.names - tuned if adapter_names.unnumbered(n) in alike)
    told = adapter_targets.tell(settings, rest) or ()
    return found + [name for name, one in zip(rest, told, strict=False) if one.tuned]


def _has(base: Base, name: str) -> bool:
    return any(ends_with(module, [name]) for module in base.names)


def _sizes(settings: Mapping[str, Any], keys: Keys, base: Base) -> Iterator[Marked]:
    """Tell of tensors that do not fit the base's; nothing where its shapes are not known."""
    wrong: dict[str, list[str]] = {SIZED: [], RESIZED: []}
    tensors = list(_sized(settings, keys))
    names = adapter_names.match([module for module, _, _ in tensors], base, settings)
    for module, size, fits in tensors:
        there = base.shapes.get(names.known.get(module, ""))
        if there is None or len(there) != len(size) or there in fits:
            continue
        # Outside of its layers a model may get other rows: for more tokens, or other labels.
        rows = "#" not in adapter_names.unnumbered(module) and any(
            one[1:] == there[1:] for one in fits
        )
        text = f"{module}: {_by(size)} and not {_by(there)}"
        wrong[RESIZED if rows else SIZED].append(text)
    for mark, found in wrong.items():
        if found:
            yield Marked(mark=mark, count=len(found), example=found[0][:300])


def _sized(
    settings: Mapping[str, Any], keys: Keys
) -> Iterator[tuple[str, Shape, tuple[Shape, ...]]]:
    """Yield modules, the shape that they change, and the shapes that the base may have for it."""
    # Of a block-diagonal LoRA the halves have sizes of their own.
    for module, (a, b) in {} if settings.get("use_bdlora") else keys.pairs.items():
        if len(a.shape) == len(b.shape) == 2:
            size = (b.shape[0], a.shape[1])
            # Embeddings and the Conv1D of transformers have their weights the other way round.
            yield module, size, (size, size[::-1])
    for key in keys.others:
        if key.endswith(".weight") and ".lora_" not in key:
            module = key.removeprefix(PREFIX).rpartition(".")[0].replace(".base_layer", "")
            yield module, keys.tensors[key].shape, (keys.tensors[key].shape,)


def _by(shape: Shape) -> str:
    return "x".join(map(str, shape))
