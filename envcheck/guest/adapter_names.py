"""Which module of a base model each module of an adapter is, by their names.

The names in a checkpoint are not always those in the model that is loaded from it: a checkpoint of
an inner class lacks the first name (`h.0.attn` of `transformer.h.0.attn`), and libraries rename.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envcheck.guest.base_weights import Base

_MAX_NAMES = 64
# What classes with a head call the model below it, beside its own kind (`bert`, `gpt_neox`), and what
# stands below that.
_HEADS, _BELOW = frozenset({"model", "transformer"}), frozenset({"encoder", "decoder"})


@dataclass(frozen=True, slots=True)
class Names:
    """The modules of an adapter beside those of a base."""

    known: Mapping[str, str]
    """Module of the adapter -> what the base calls it, empty where several of its names fit."""
    missing: Sequence[str]
    renamed: Sequence[str]
    """Those with a name more than the base has, which no class is known to add."""
    prefixed: Sequence[str]
    """Those of them that have it before the name of a whole model, so that it can be no class's."""


def match(modules: Sequence[str], base: Base, settings: Mapping[str, Any]) -> Names:
    """Look for each module in the base."""
    order = [n for a, b in settings.get("layer_replication") or () for n in range(a, b)]
    ends: dict[str, str] = {}
    for name in base.names:
        for end in _ends(name):
            # Vision towers have layers too, whose names end like those of the language model.
            ends[end] = "" if end in ends else name
    ends.update({name: name for name in base.names})
    known: dict[str, str] = {}
    missing: list[str] = []
    renamed: list[str] = []
    prefixed: list[str] = []
    heads = _HEADS.union([base.kind, *base.kind.split("-")] if base.kind else [])
    for module in modules:
        name = _replicated(module, order)
        shorter = next((e for e in _ends(name) if e in base.names), None)
        if name in ends:
            known[module] = ends[name]
        elif shorter is not None:
            known[module] = shorter
            before = name[: -len(shorter) - 1].split(".")
            if not (base.composite or (heads | _BELOW).issuperset(before)):
                (prefixed if shorter.split(".")[0] in heads else renamed).append(module)
        elif base.composite and (found := [e for e in _layer_ends(name) if e in ends]):
            known[module] = ends[found[0]]
        elif (inner := _without_second(name)) in base.names:
            known[module] = inner
            renamed.append(module)
        else:
            missing.append(module)
    return Names(known, _told(missing, modules, ends), renamed, prefixed)


def _told(missing: list[str], modules: Sequence[str], ends: Iterable[str]) -> list[str]:
    # Libraries rename modules when they load a checkpoint (transformers 5 joins experts), so a name
    # that is new tells nothing, unless it differs from a known one by the number of its layer.
    if len(missing) < len(modules) or any("experts" in m.split(".") for m in missing):
        shapes = {unnumbered(end) for end in ends}
        return [m for m in missing if unnumbered(m) in shapes]
    return missing


def _replicated(module: str, order: Sequence[int]) -> str:
    """Return its name before PEFT repeated layers: those have the weights of the first."""
    names = module.split(".")
    at = next((i for i, name in enumerate(names) if name.isdecimal()), None)
    if at is not None and int(names[at]) < len(order):
        names[at] = str(order[int(names[at])])
    return ".".join(names)


def _without_second(module: str) -> str:
    """Return the name without the one that stands between the first and the rest."""
    names = module.split(".")
    return ".".join((names[0], *names[2:]))


def _layer_ends(module: str) -> Iterator[str]:
    """Yield the ends that have the number of a layer: others are the same for many modules."""
    return (end for end in _ends(module) if any(n.isdecimal() for n in end.split(".")[1:-1]))


def unnumbered(module: str) -> str:
    """Return its name with the same sign for every number of a layer."""
    return ".".join("#" if name.isdecimal() else name for name in module.split("."))


def _ends(module: str) -> Iterator[str]:
    names = module.split(".")
    return (".".join(names[i:]) for i in range(min(len(names), _MAX_NAMES)))
