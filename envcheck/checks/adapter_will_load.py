"""A LoRA adapter loads into its base model, and changes something there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from envcheck.checks import remedies
from envcheck.checks.check import Check, Question
from envcheck.core import adapter_settings
from envcheck.core.artefacts import Adapter, Marked
from envcheck.core.model import Domain, Finding, Json, Status

_SAVED = "save it again from the unwrapped model: model.save_pretrained(folder)"
_ITS_OWN = "put the adapter_config.json beside it that was saved with it"
_PREFIX, _PARALLEL = "base_model.model.", "module."
_LFS, _PULL = "Git LFS", "git lfs pull"
# mark -> (what it means, remedy, whether that follows from PEFT's rules alone). Measured with PEFT
# 0.21.2 by loading such adapters (`tests/test_adapters_in_peft.py`): with the first four the model
# is as if untrained, and no error is raised.
_MEANS = {
    "wrapped": (
        "names of a wrapper in the keys (torch.compile, FSDP, DDP): no plain model has them",
        "rename the keys without `_orig_mod.`, `module.` and the like, or " + _SAVED,
        False,
    ),
    "doubled-prefix": ("`base_model.model.` twice in the keys", _SAVED, False),
    "adapter-name": (
        "an adapter's name in the keys, which PEFT puts there itself when it loads",
        "rename the keys to end in `lora_A.weight` and `lora_B.weight`, or " + _SAVED,
        True,
    ),
    "no-prefix": (
        "keys without `base_model.model.` before all else, which PEFT looks for",
        _SAVED,
        True,
    ),
    "no-partner": ("modules with only one of `lora_A` and `lora_B`", _SAVED, False),
    "other-pair": ("a `lora_B` of another rank than its `lora_A`", _SAVED, False),
    "not-finite": (
        "tensors with NaN or infinity: so is what the model computes",
        "train it again from the last checkpoint without them",
        False,
    ),
    "other-rank": ("tensors of another rank than `r` in adapter_config.json", _ITS_OWN, True),
    "not-targeted": (
        "modules that target_modules of adapter_config.json leaves out: PEFT drops their weights",
        _ITS_OWN,
        True,
    ),
    "no-magnitude": (
        "modules without `lora_magnitude_vector`, though use_dora is set",
        _ITS_OWN,
        True,
    ),
    "unused-magnitude": (
        "modules with `lora_magnitude_vector`, which PEFT drops: use_dora is not set",
        _ITS_OWN,
        True,
    ),
    "other-tokens": (
        "tensors of trained tokens that are not as many as trainable_token_indices names",
        _ITS_OWN,
        True,
    ),
    "unused-bias": (
        "biases of `lora_B`, which PEFT drops: lora_bias is not set",
        _ITS_OWN,
        True,
    ),
}
_MISNAMED = ("wrapped", "doubled-prefix", "no-prefix")
_OF_NAMES = ("prefix-not-in-base", "name-not-in-base", "not-in-base", "not-tuned")
_Wrong = tuple[Status, str, str]


def _run(question: Question) -> Iterator[Finding]:
    adapters = question.inventory.adapters
    if not adapters:
        yield CHECK.skip("adapters", "no LoRA adapter (.safetensors) is in what was looked at")
    for adapter in adapters:
        yield from _judge(adapter)


def _judge(adapter: Adapter) -> Iterator[Finding]:
    settings = json.loads(adapter.settings) if adapter.settings is not None else {}
    kind = adapter_settings.kind(settings)
    if adapter.problem is None and kind not in (None, adapter_settings.LORA):
        yield CHECK.skip(adapter.path, f"its peft_type is {kind}: only LoRA is looked at")
        return
    evidence: dict[str, Json] = {
        "pairs": adapter.pairs,
        "marks": {m.mark: m.count for m in (*adapter.marks, *adapter.unlike_base)},
        "zero": adapter.zero,
        "base": adapter.base,
    }
    wrong = list(_wrong(adapter, settings))
    for status, message, remedy in wrong or [(Status.PASS, _good(adapter, settings), "")]:
        yield CHECK.finding(
            adapter.path,
            status,
            message,
            remedy=remedy,
            domain=Domain.JOB,
            evidence=evidence,
        )
    if adapter.unmatched:
        reason = "a pattern in adapter_config.json takes too long: no module was compared with it"
        yield CHECK.skip(adapter.path, reason)


def _good(adapter: Adapter, settings: Mapping[str, Json]) -> str:
    named = settings.get("base_model_name_or_path")
    if adapter.base:
        base = f"compared with {adapter.base}"
        if adapter.base_unsized:
            base += f" by its names alone: {adapter.base_unsized}"
    elif named:
        base = f"not compared with a base model: {named} is no folder here with its weights"
    else:
        base = "not compared with a base model, as none is named beside it"
    message = f"{adapter.pairs} pair(s) of lora_A and lora_B, none of which is zero"
    if adapter.unread:
        message += f" as far as they were read ({adapter.unread} tensors were not)"
    return f"{message}; {base}"


def _wrong(adapter: Adapter, settings: Mapping[str, Json]) -> Iterator[_Wrong]:
    refused = [p for p in (adapter.problem, adapter.unconfigured) if p and remedies.is_refused(p)]
    if refused:
        yield Status.ERROR, f"cannot be judged: {refused[0]}", remedies.AS_A_READER
        return
    if adapter.problem is not None:
        remedy = _PULL if _LFS in adapter.problem else "fetch or save the file again"
        yield Status.FAIL, f"cannot be loaded: {adapter.problem}", remedy
        return
    if adapter.for_peft and adapter.unconfigured is not None:
        remedy = _PULL if _LFS in adapter.unconfigured else _ITS_OWN
        yield Status.FAIL, f"PEFT cannot load it: {adapter.unconfigured}", remedy
    if adapter.settings is not None:
        for fault in adapter_settings.faults(settings):
            yield Status.FAIL, fault.why, fault.remedy
    if not adapter.pairs and not adapter.marks:
        yield Status.FAIL, "it holds no LoRA weights", _SAVED
        return
    yield from _marked(adapter)
    yield from _without_effect(adapter)
    # Names that no model has are in no base either.
    misnamed = any(mark.mark in _MISNAMED for mark in adapter.marks)
    for mark in adapter.unlike_base:
        if not (misnamed and mark.mark in _OF_NAMES):
            yield _unlike(adapter, mark)


def _marked(adapter: Adapter) -> Iterator[_Wrong]:
    """Tell of keys that PEFT does not look for, or that the settings contradict."""
    for mark in adapter.marks:
        if mark.mark in _MEANS:
            means, remedy, of_peft = _MEANS[mark.mark]
            if adapter.settings is not None or not of_peft:
                if mark.mark == "no-prefix":
                    remedy = _prefixed(mark.example)
                where = f"({mark.count}, the first is {mark.example})"
                yield Status.FAIL, f"{means} {where}", remedy
        if mark.mark == "rank-of-old-peft":
            message = f"{mark.count} tensor(s) of a rank that rank_pattern gives in PEFT up to 0.14"
            yield Status.WARN, f"{message} alone ({mark.example})", "pip install 'peft<0.15'"


def _prefixed(key: str) -> str:
    """Say how such a key becomes one that PEFT finds, where that is sure."""
    before, found, _ = key.partition(_PREFIX)
    if found:
        return f"remove `{before}` before `{_PREFIX}` in each key, or {_SAVED}"
    if key.startswith("base_model."):
        return _SAVED
    if key.startswith(_PARALLEL):
        return f"put `{_PREFIX}` in the place of `{_PARALLEL}` before each key, or {_SAVED}"
    return f"put `{_PREFIX}` before each key, or {_SAVED}"


def _without_effect(adapter: Adapter) -> Iterator[_Wrong]:
    """Tell of products that are zero, by their weights or by their scale."""
    scaled = next((m.count for m in adapter.marks if m.mark == "scaled-by-zero"), 0)
    trained = "set lora_alpha in adapter_config.json to the one that it was trained with"
    again = "train it again, and save it after the optimizer's steps"
    for count, how, some, every in (
        (adapter.zero, "lora_B or lora_A of zeros", "look whether they got gradients", again),
        (scaled, "lora_alpha of 0", trained, trained),
    ):
        if not count:
            continue
        if count < adapter.pairs:
            message = f"{count} of {adapter.pairs} pairs have a {how}: they change nothing"
            yield Status.WARN, message, some
        elif adapter.others:
            message = (
                f"all {count} pairs have a {how}: only its {adapter.others} other tensors tell"
            )
            yield Status.WARN, message, every
        else:
            message = f"all {count} pairs have a {how}: it changes nothing, as before training"
            yield Status.FAIL, message, every


def _unlike(adapter: Adapter, mark: Marked) -> _Wrong:
    there = f"the base model {adapter.base}"
    named = f"{mark.example}, which {there} has and this file has not"
    trained = "use the base model that it was trained with"
    unwrapped = f"rename the keys to the names that the model has, or {_SAVED}"
    every = mark.count >= adapter.pairs
    share = "none of its modules is" if every else f"{mark.count} of its modules are not"
    more = f"{mark.count} module(s) have a name more than in {there} ({mark.example})"
    sizes = f"{mark.count} tensor(s) of another size than in {there} ({mark.example})"
    told: dict[str, _Wrong] = {
        "not-saved": (Status.FAIL, f"modules_to_save names {named}: PEFT raises", _SAVED),
        "not-tuned": (Status.WARN, f"target_modules names {named}: it stays untrained", _SAVED),
        "other-size": (Status.FAIL, f"{sizes}: PEFT raises", trained),
        # The job may do that, and one that does not gets PEFT's error.
        "other-rows": (
            Status.WARN,
            f"{sizes}: PEFT raises, unless the job gives the model as many rows before",
            "call model.resize_token_embeddings before PEFT, or load the model with num_labels",
        ),
        "prefix-not-in-base": (Status.FAIL, f"{more}: PEFT drops their weights", unwrapped),
        "name-not-in-base": (
            Status.WARN,
            f"{more}: PEFT drops their weights, unless the job's model calls them so",
            unwrapped,
        ),
        "not-in-base": (
            Status.FAIL if every else Status.WARN,
            f"{share} in {there} ({mark.example})",
            trained,
        ),
    }
    return told[mark.mark]


CHECK = Check(
    id="adapter-will-load",
    claim="LoRA adapters load into their base model, and change something there.",
    how=(
        "Reads each safetensors file with LoRA weights, never the model. A header that the library "
        "refuses fails. Keys that PEFT does not look for (wrappers' names, a doubled or missing "
        "prefix, an adapter's name) are dropped with a mere warning when it loads, so the adapter "
        "is a no-op; one that is zero or scaled by zero is that too, and NaN in it spoils all. "
        "Where adapter_config.json lies beside it, its settings are compared with what PEFT takes "
        "and with the tensors, and names and sizes with the base model, where one on this machine "
        "is named. Other types than LoRA are not looked at."
    ),
    classes=("L",),
    remedy="Save the adapter again from the unwrapped model.",
    run=_run,
)
