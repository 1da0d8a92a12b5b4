"""What an adapter's settings say of each module: whether it is tuned, its rank and its scale.

The rules are those of PEFT 0.21.2 (`check_target_module_exists`, `get_pattern_key`): names in a
list match whole or as the end of a name, a text is a regular expression of the whole name, and the
first key of a pattern that matches the end counts.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envcheck.core.adapter_settings import ALPHA, RANK
from envcheck.guest import trial

ALL_LINEAR = "all-linear"
# Matching it takes a time that grows with the name alone; any other might take for ever.
_PLAIN = re.compile(r"\^?(?:\.\*)?(?:[\w-]|\\?\.(?![*+?{]))*\$?", re.ASCII)
_DEADLINE = 10.0


@dataclass(frozen=True, slots=True)
class Told:
    """What the settings say of one module."""

    tuned: bool
    ranks: Sequence[int]
    """The rank that PEFT gives it, then those that releases up to 0.14 did."""
    alpha: float
    stacked: bool
    """A parameter of it may be tuned, whose rank is multiplied by the number of experts."""


def tell(settings: Mapping[str, Any], modules: Sequence[str]) -> tuple[Told, ...] | None:
    """Return what is said of each module, None where a pattern takes too long.

    The settings must be without fault (`core.adapter_settings.faults`).
    """
    patterns = (*settings.get("rank_pattern", {}), *settings.get("alpha_pattern", {}))
    texts = [settings.get(key) for key in ("target_modules", "exclude_modules")]
    texts += settings.get("modules_to_save") or []
    layers = settings.get("layers_pattern")
    texts += layers if isinstance(layers, list) else [layers]
    if all(_PLAIN.fullmatch(text) for text in (*patterns, *texts) if isinstance(text, str)):
        return tuple(_told(settings, module) for module in modules)
    ended = trial.run(
        lambda: [
            [t.tuned, t.ranks, t.alpha, t.stacked] for t in (_told(settings, m) for m in modules)
        ],
        deadline=_DEADLINE,
    )
    if not isinstance(ended.value, list):
        return None
    return tuple(Told(*row) for row in ended.value)


def ends_with(module: str, names: Iterable[str]) -> bool:
    """Say whether it is one of these names, or ends with one."""
    return any(module == name or module.endswith(f".{name}") for name in names)


def _told(settings: Mapping[str, Any], module: str) -> Told:
    ranks, alphas = settings.get("rank_pattern", {}), settings.get("alpha_pattern", {})
    owners = [name.rpartition(".")[0] for name in settings.get("target_parameters") or ()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what will change in regular expressions
        return Told(
            tuned=_is_tuned(settings, module),
            ranks=tuple(_ranks(ranks, alphas, module, settings.get("r", RANK))),
            alpha=_first(alphas, module, settings.get("lora_alpha", ALPHA)),
            # A parameter that is named alone may be of any module that is no target by its name.
            stacked=ends_with(module, owners) or ("" in owners and not _is_named(settings, module)),
        )


def _first(pattern: Mapping[str, Any], module: str, otherwise: Any) -> Any:
    found = (key for key in pattern if re.match(rf"(.*\.)?({key})$", module))
    return pattern.get(next(found, module), otherwise)


def _ranks(
    ranks: Mapping[str, Any], alphas: Mapping[str, Any], module: str, otherwise: Any
) -> Iterator[Any]:
    yield _first(ranks, module, otherwise)
    # PEFT 0.14 took no key for a whole name, and 0.10 looked among those of both patterns.
    for keys in ((*ranks,), (*ranks, *alphas)):
        found = (key for key in keys if re.match(rf".*\.{key}$", module))
        yield ranks.get(next(found, module), otherwise)


def _is_tuned(settings: Mapping[str, Any], module: str) -> bool:
    if _matches(settings.get("exclude_modules"), module):
        return False
    saved = settings.get("modules_to_save") or ()
    if any(re.match(rf"(^|.*\.){name}($|\..*)", module) for name in saved):
        return False
    targets = settings.get("target_modules")
    # Without targets they follow from the model's kind, which PEFT has a table of; tied weights
    # are tuned with those that they are tied to.
    if targets is None or targets == ALL_LINEAR or settings.get("ensure_weight_tying"):
        return True
    return _matches(targets, module) and (isinstance(targets, str) or _is_layer(settings, module))


def _is_named(settings: Mapping[str, Any], module: str) -> bool:
    targets = settings.get("target_modules")
    return targets not in (None, ALL_LINEAR) and _is_tuned(settings, module)


def _matches(names: Any, module: str) -> bool:
    if isinstance(names, str):
        return bool(names) and re.fullmatch(names, module) is not None
    return ends_with(module, names or ())


def _is_layer(settings: Mapping[str, Any], module: str) -> bool:
    """Say whether it is of a layer in `layers_to_transform`."""
    layers = settings.get("layers_to_transform")
    wanted = [layers] if isinstance(layers, int) else layers
    if not wanted:
        return True
    said = settings.get("layers_pattern") or []
    patterns = [said] if isinstance(said, str) else said
    found = (
        [re.match(rf"(?:^|.*?\.){one}\.(?P<idx>\d+)\.", module) for one in patterns]
        if patterns
        else [re.match(r".*?\.[^.]*\.(?P<idx>\d+)\.", module)]
    )
    number = next((match["idx"] for match in found if match), None)
    return number is not None and int(number) in wanted
