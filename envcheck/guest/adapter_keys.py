"""The keys of a LoRA adapter: which modules they are of, and what PEFT does not find among them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from envcheck.core.artefacts import Marked
from envcheck.guest import adapter_targets
from envcheck.guest.adapter_targets import Told
from envcheck.guest.safetensors import Tensor

# Marks: keys that PEFT does not look for, in the order in which they are told.
WRAPPED, DOUBLED, NAMED, BARE = "wrapped", "doubled-prefix", "adapter-name", "no-prefix"
SINGLE, OTHER_PAIR, NOT_FINITE = "no-partner", "other-pair", "not-finite"
# Those that the settings contradict.
RANKED, ONCE_RANKED = "other-rank", "rank-of-old-peft"
UNTARGETED, SCALED = "not-targeted", "scaled-by-zero"
NO_MAGNITUDE, MAGNITUDE, BIASED = "no-magnitude", "unused-magnitude", "unused-bias"
OTHER_TOKENS = "other-tokens"

PREFIX = "base_model.model."
# What torch.compile, DDP, FSDP and activation checkpointing put between the names of modules.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# What DataParallel and DDP put before all of them; further inside a model may have such a name.
_PARALLEL = PREFIX + "module."
_LORA = re.compile(
    r"(?P<module>.+)\.lora_(?:(?P<side>[AB])(?P<named>(?:\.[^.]+)*?)\.weight"
    r"|embedding_(?P<rows>[AB])(?P<called>(?:\.[^.]+)*))"
)
_MAGNITUDE = re.compile(r"(?P<module>.+)\.lora_magnitude_vector(?:\..+)?")
_BIAS = re.compile(r"(?P<module>.+)\.lora_B(?:\.[^.]+)*?\.bias")
_TOKENS = ".token_adapter.trainable_tokens_delta"
_MAX_KEY = 1024


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one file, grouped."""

    tensors: Mapping[str, Tensor]
    found: Mapping[str, re.Match[str]]
    """The keys of LoRA weights."""
    sides: Mapping[str, Mapping[str, str]]
    """Module and adapter's name -> `A` or `B` -> the key."""
    others: tuple[str, ...]

    @property
    def modules(self) -> list[str]:
        """The modules with LoRA weights, as the base model calls them."""
        return list(dict.fromkeys(_module(match) for match in self.found.values()))

    @property
    def pairs(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The A and B of each module, without those that wrap a part or a parameter of it."""
        return {
            _module(self.found[sides["A"]]): (self.tensors[sides["A"]], self.tensors[sides["B"]])
            for sides in self.sides.values()
            if len(sides) == 2 and ".base_layer" not in sides["A"]
        }

    @property
    def whole(self) -> list[str]:
        """The modules of which the file has other tensors."""
        return [key.removeprefix(PREFIX).rpartition(".")[0] for key in self.others]


def group(tensors: Mapping[str, Tensor]) -> Keys:
    """Group the keys of a file."""
    found = {k: m for k in tensors if len(k) <= _MAX_KEY and (m := _LORA.fullmatch(k))}
    sides: dict[str, dict[str, str]] = {}
    for key, match in found.items():
        sides.setdefault(match["module"] + _name(match), {})[match["side"] or match["rows"]] = key
    return Keys(tensors, found, sides, tuple(key for key in tensors if key not in found))


def marks(keys: Keys, settings: Mapping[str, Any]) -> Iterator[Marked]:
    """Yield what the keys have in common that should not be there."""
    found, tensors = keys.found, keys.tensors
    # Of a block-diagonal LoRA the halves have ranks of their own.
    pairs = [] if settings.get("use_bdlora") else [s for s in keys.sides.values() if len(s) == 2]
    yield from _grouped(
        {
            WRAPPED: [
                k for k in found if set(_WRAPPERS) & set(k.split(".")) or k.startswith(_PARALLEL)
            ],
            DOUBLED: [k for k in found if k.startswith(PREFIX + PREFIX)],
            # PEFT itself takes `default`, the name that it gives where none is given.
            NAMED: [k for k, match in found.items() if _name(match) not in ("", ".default")],
            BARE: [k for k in found if not k.startswith(PREFIX)],
            SINGLE: [module for module, sides in keys.sides.items() if len(sides) == 1],
            OTHER_PAIR: [s["B"] for s in pairs if not _are_pair(tensors[s["A"]], tensors[s["B"]])],
        }
    )


def against(keys: Keys, settings: Mapping[str, Any]) -> list[Marked] | None:
    """Return what the settings contradict, None where that takes too long."""
    names = keys.modules
    said = adapter_targets.tell(settings, names)
    if said is None:
        return None
    told = dict(zip(names, said, strict=True))
    dora = bool(settings.get("use_dora"))
    magnitudes = {m["module"] for key in keys.others if (m := _MAGNITUDE.fullmatch(key))}
    modules = {match["module"] for match in keys.found.values()}
    ranked = _ranked(keys, settings, told)
    biases = [key for key in keys.others if _BIAS.fullmatch(key)]
    by_parameter = bool(settings.get("alpha_pattern"))
    groups = {
        RANKED: [key for key, which in ranked.items() if which is None],
        ONCE_RANKED: [key for key, which in ranked.items() if which],
        UNTARGETED: [name for name, one in told.items() if not (one.tuned or one.stacked)],
        SCALED: [
            name
            for name, one in told.items()
            if one.alpha == 0 and not (one.stacked and by_parameter)
        ],
        NO_MAGNITUDE: sorted(modules - magnitudes) if dora else [],
        MAGNITUDE: [] if dora else sorted(magnitudes),
        BIASED: [] if settings.get("lora_bias") else biases,
        OTHER_TOKENS: list(_other_tokens(keys, settings.get("trainable_token_indices"))),
    }
    return list(_grouped(groups))


def _grouped(groups: Mapping[str, list[str]]) -> Iterator[Marked]:
    for mark, found in groups.items():
        if found:
            yield Marked(mark=mark, count=len(found), example=found[0][:300])


def _name(match: re.Match[str]) -> str:
    return match["named"] or match["called"] or ""


def _module(match: re.Match[str]) -> str:
    """Return what the settings call it: wrapped parts stand below the name of the whole."""
    return match["module"].removeprefix(PREFIX).partition(".base_layer")[0]


def _ranked(
    keys: Keys, settings: Mapping[str, Any], told: Mapping[str, Told]
) -> dict[str, int | None]:
    """Return for each `lora_A` which of the ranks it has that it may have, None for another."""
    if settings.get("use_bdlora"):
        return {}
    found: dict[str, int | None] = {}
    for key, match in keys.found.items():
        if (match["side"] or match["rows"]) != "A":
            continue
        one, shape = told[_module(match)], keys.tensors[key].shape
        rank = shape[0] if shape else 0
        if one.stacked:
            # A pattern names the parameter there, of which the key says nothing.
            fits = [rank % r == 0 for r in (*one.ranks, *settings.get("rank_pattern", {}).values())]
            found[key] = 0 if any(fits) else None
        else:
            found[key] = list(one.ranks).index(rank) if rank in one.ranks else None
    return found


def _other_tokens(keys: Keys, tokens: Any) -> Iterator[str]:
    """Yield the tensors of trained tokens that have not as many rows as the settings name."""
    tensors = [key for key in keys.others if key.endswith(_TOKENS)]
    if tokens and not tensors:
        yield "none is in the file"
    for key in tensors:
        module = key.removesuffix(_TOKENS)
        named = tokens if isinstance(tokens, dict) else {module: tokens or ()}
        found = [n for name, n in named.items() if adapter_targets.ends_with(module, [name])]
        if not found or keys.tensors[key].shape[:1] != (len(found[0]),):
            yield key


def _are_pair(first: Tensor, second: Tensor) -> bool:
    """Say whether `B A` can be formed; a convolution in groups has a part of the rank in `B`."""
    if len(first.shape) < 2 or len(second.shape) < 2 or not second.shape[1]:
        return False
    if len(first.shape) == 2:
        return first.shape[0] == second.shape[1]
    return first.shape[0] % second.shape[1] == 0
