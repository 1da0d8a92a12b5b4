"""What PEFT makes of the settings in an adapter's adapter_config.json.

Each rule was measured with PEFT 0.21.2 by loading an adapter with such a setting
(`tests/test_adapters_in_peft.py` does it again where PEFT is installed): it raises, or scales by
something else than was meant. Settings that are not there have PEFT's defaults.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

LORA = "LORA"
RANK = ALPHA = 8
"""PEFT's defaults of `r` and `lora_alpha`."""
_NEWEST = (0, 21)
TYPES = frozenset([
    "PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", LORA, "ADALORA",
    "ADAMSS", "BOFT", "ADAPTION_PROMPT", "IA3", "BEFT", "LILY", "LOHA", "LOKR", "OFT", "POLY",
    "LN_TUNING", "VERA", "FROD", "PVERA", "FOURIERFT", "GLORA", "XLORA", "HRA", "VBLORA", "UNILORA",
    "CPT", "MISS", "RANDLORA", "ROAD", "TRAINABLE_TOKENS", "HIRA", "SHIRA", "C3A", "WAVEFT", "OSF",
    "DELORA", "GRALORA", "CARTRIDGE", "TINYLORA", "PSOFT", "PEANUT", "SHADOW", "SUPERTUNING", "DEFT",
    "BONE",
])  # fmt: skip
"""Those of PEFT 0.21.2 (`peft/utils/peft_types.py`), and BONE of older ones; newer have more."""
_BIASES = ("none", "all", "lora_only")
_TASKS = (
    "SEQ_CLS", "SEQ_2_SEQ_LM", "CAUSAL_LM", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION",
)  # fmt: skip
# How weights may begin, as PEFT asks for each: some in any letters, some by a first part.
_BEGINNINGS = re.compile(
    r"(?i:gaussian|olora|mica)|eva|orthogonal|loftq|lora_ga|pissa(_niter_\d+)?|corda.*"
)
_MAX_LAYERS = 10_000
_SWITCHES = ("use_rslora", "use_dora", "lora_bias")

READ = (
    "alpha_pattern", "base_model_name_or_path", "bias", "ensure_weight_tying",
    "exclude_modules", "init_lora_weights", "layer_replication", "layers_pattern",
    "layers_to_transform", "lora_alpha", "lora_bias", "lora_dropout", "modules_to_save",
    "peft_type", "peft_version", "r", "rank_pattern", "target_modules", "target_parameters",
    "task_type", "trainable_token_indices", "use_bdlora", "use_dora", "use_rslora",
)  # fmt: skip
"""The settings that are looked at."""


class Fault(NamedTuple):
    """One setting that PEFT does not take."""

    setting: str
    why: str
    remedy: str


def kind(settings: Mapping[str, Any]) -> str | None:
    """Return the `peft_type`, None where PEFT takes it for none."""
    value = settings.get("peft_type")
    # PEFT looks for names as they stand, and its own are in capitals.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Z][A-Z0-9_]*", value):
        return None
    return value if value in TYPES or _is_newer(settings.get("peft_version")) else None


def _is_newer(version: Any) -> bool:
    """Say whether an adapter was saved by a PEFT whose types are not in the table."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", version) if isinstance(version, str) else None
    return found is not None and (int(found[1]), int(found[2])) > _NEWEST


def faults(settings: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield each setting with which PEFT raises, or takes for something else."""
    if kind(settings) is None:
        said = _short(settings["peft_type"]) if "peft_type" in settings else "missing"
        yield Fault("peft_type", f"peft_type is {said}: PEFT has no such type", 'set "peft_type"')
        return
    if kind(settings) != LORA:
        return
    yield from _numbers(settings)
    yield from _patterns(settings)
    yield from _targets(settings)
    bias = settings.get("bias", "none")
    if bias not in _BIASES:
        yield _fault("bias", bias, "PEFT raises", f"one of {', '.join(_BIASES)}")
    yield from _kinds(settings)
    for name in _SWITCHES:
        if isinstance(settings.get(name), str) and settings[name]:
            yield _fault(name, settings[name], "a text that is not empty is true", "true or false")


def _kinds(settings: Mapping[str, Any]) -> Iterator[Fault]:
    task = settings.get("task_type")
    if task is not None and task not in _TASKS:
        yield _fault("task_type", task, "PEFT raises", f"null, or one of {', '.join(_TASKS)}")
    begun = settings.get("init_lora_weights", True)
    if begun and begun is not True and not _BEGINNINGS.fullmatch(str(begun)):
        yield _fault("init_lora_weights", begun, "no such way: PEFT raises", "true")
    replicated = settings.get("layer_replication")
    if replicated is not None and not _are_ranges(replicated):
        yield _fault("layer_replication", replicated, "no list of ranges", "[[first, end], ...]")
    tokens = settings.get("trainable_token_indices")
    lists = list(tokens.values()) if isinstance(tokens, dict) else [tokens]
    if tokens is not None and not (lists and all(map(_are_tokens, lists))):
        wanted = "the numbers of the tokens that it was trained with"
        yield _fault("trainable_token_indices", tokens, "no list of tokens: PEFT raises", wanted)


def _numbers(settings: Mapping[str, Any]) -> Iterator[Fault]:
    rank = settings.get("r", RANK)
    if not is_rank(rank):
        yield _fault("r", rank, "PEFT raises", "the rank that it was trained with")
    alpha = settings.get("lora_alpha", ALPHA)
    if not is_alpha(alpha):
        yield _fault("lora_alpha", alpha, "no number", "the one that it was trained with")
    dropout = settings.get("lora_dropout", 0.0)
    if not _is_number(dropout) or not dropout <= 1:
        yield _fault("lora_dropout", dropout, "PEFT raises", "a number from 0 to 1")


def _patterns(settings: Mapping[str, Any]) -> Iterator[Fault]:
    for name, fits in (("rank_pattern", is_rank), ("alpha_pattern", is_alpha)):
        pattern = settings.get(name, {})
        if not isinstance(pattern, dict):
            yield _fault(name, pattern, "PEFT raises", "an object, {} for none")
            continue
        for key, value in pattern.items():
            if not _compiles(rf"(.*\.)?({key})$"):
                yield _fault(name, key, "no regular expression", "the name of a module")
            elif not fits(value):
                yield _fault(f"{name}.{key[:60]}", value, "PEFT raises", "a number above 0")


def _targets(settings: Mapping[str, Any]) -> Iterator[Fault]:
    targets = settings.get("target_modules")
    parameters = settings.get("target_parameters")
    modules = "the modules that it was trained with"
    if not targets and targets is not None and not parameters:
        yield _fault("target_modules", targets, "no module at all: PEFT raises", modules)
    for name in ("target_modules", "exclude_modules"):
        value = settings.get(name)
        if isinstance(value, str):
            if not _compiles(value):
                yield _fault(name, value, "no regular expression: PEFT raises", modules)
        elif value is not None and not _are_names(value):
            yield _fault(name, value, "neither a text nor a list of texts", modules)
    yield from _names(settings)
    yield from _layers(settings)


def _names(settings: Mapping[str, Any]) -> Iterator[Fault]:
    modules = "the modules that it was trained with"
    for name in ("modules_to_save", "target_parameters"):
        if settings.get(name) is not None and not _are_names(settings[name]):
            yield _fault(name, settings[name], "no list of texts", modules)
    for name in ("modules_to_save", "layers_pattern"):
        value = settings.get(name)
        for one in value if _are_names(value) else [value]:
            if isinstance(one, str) and not _compiles(rf"(^|.*\.){one}($|\..*)"):
                yield _fault(name, one, "no regular expression: PEFT raises", modules)


def _layers(settings: Mapping[str, Any]) -> Iterator[Fault]:
    layers, pattern = settings.get("layers_to_transform"), settings.get("layers_pattern")
    if isinstance(settings.get("target_modules"), str) and layers is not None:
        why = "not taken beside target_modules that is a text: PEFT raises"
        yield _fault("layers_to_transform", layers, why, "null")
    elif layers is not None and not _are_layers(layers):
        yield _fault("layers_to_transform", layers, "no number of a layer", "a list of numbers")
    if pattern and (layers is None or not (isinstance(pattern, str) or _are_names(pattern))):
        why = "without layers_to_transform PEFT raises" if layers is None else "no text"
        yield _fault("layers_pattern", pattern, why, "null")


def is_rank(value: Any) -> bool:
    """Say whether PEFT makes tensors of that rank."""
    return type(value) is int and 0 < value < 1 << 31


def is_alpha(value: Any) -> bool:
    """Say whether PEFT can scale by it; by 0 it can, and nothing remains."""
    return _is_number(value) and (isinstance(value, int) or math.isfinite(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_names(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_layers(value: Any) -> bool:
    return all(type(one) is int for one in (value if isinstance(value, list) else [value]))


def _are_ranges(value: Any) -> bool:
    """Say whether it is a list of pairs of layers, the second of which is the end of the range."""
    return (
        isinstance(value, list)
        and all(isinstance(p, list) and len(p) == 2 and all(map(_is_layer, p)) for p in value)
        and sum(max(0, end - first) for first, end in value) <= _MAX_LAYERS
    )


def _is_layer(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)


def _compiles(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what will change in regular expressions
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _fault(setting: str, value: Any, why: str, wanted: str) -> Fault:
    remedy = f"set {setting} in adapter_config.json to {wanted}"
    return Fault(setting, f"{setting} is {_short(value)}: {why}", remedy)


def _short(value: Any) -> str:
    # As JSON has it: `null` and `true`, whatever Python calls them.
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    return repr(value)[:80]
