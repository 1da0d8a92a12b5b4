"""A LoRA adapter loads into its base model, and changes something there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from envcheck.checks.check import Check, Question
from envcheck.core import adapter_settings
from envcheck.core.artefacts import Adapter, Marked
from envcheck.core.model import Domain, Finding, Json, Status

_SAVED = "save it again from the unwrapped model: model.save_pretrained(folder)"
_ITS_OWN = "put the adapter_config.json beside it that was saved with it"
_LFS, _PULL = "Git LFS", "git lfs pull"
# mark -> (what it means, remedy, whether that follows from PEFT's rules alone). Measured with PEFT
# 0.21.2 by loading such adapters (`tests/test_adapters_in_peft.py`): with the first four the model
# is as if untrained, and no error is raised.
_MEANS = {
    "wrapped": (
        "names of a wrapper in the keys (torch.compile, FSDP): a plain model has no such modules",
        "rename the keys without `_orig_mod.` and the like, or " + _SAVED,
        False,
    ),
    "doubled-prefix": ("`base_model.model.` twice in the keys", _SAVED, False),
    "adapter-name": (
        "an adapter's name in the keys, which PEFT puts there itself when it loads",
        "rename the keys to end in `lora_A.weight` and `lora_B.weight`, or " + _SAVED,
        True,
    ),
    "no-prefix": (
        "keys without `base_model.model.`, which PEFT looks for",
        "put `base_model.model.` before each key, or " + _SAVED,
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
    "unused-bias": (
        "biases of `lora_B`, which PEFT drops: lora_bias is not set",
        _ITS_OWN,
        True,
    ),
}
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
    elif named:
        base = f"not compared with a base model: {named} is no folder here with its weights"
    else:
        base = "not compared with a base model, as none is named beside it"
    message = f"{adapter.pairs} pair(s) of lora_A and lora_B, none of which is zero"
    if adapter.unread:
        message += f" as far as they were read ({adapter.unread} tensors were not)"
    return f"{message}; {base}"


def _wrong(adapter: Adapter, settings: Mapping[str, Json]) -> Iterator[_Wrong]:
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
    for mark in adapter.marks:
        if mark.mark in _MEANS:
            means, remedy, of_peft = _MEANS[mark.mark]
            if adapter.settings is not None or not of_peft:
                yield Status.FAIL, f"{mark.count} time(s) {means} ({mark.example})", remedy
        if mark.mark == "rank-of-old-peft":
            message = f"{mark.count} tensor(s) of a rank that rank_pattern gives in PEFT up to 0.14"
            yield Status.WARN, f"{message} alone ({mark.example})", "pip install 'peft<0.15'"
    yield from _without_effect(adapter)
    for mark in adapter.unlike_base:
        yield _unlike(adapter, mark)


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
        if count < adapter.pairs or adapter.unread:
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
    if mark.mark == "not-saved":
        message = f"modules_to_save names {mark.example}, which {there} has and this file has not"
        return Status.FAIL, f"{message}: PEFT raises", _SAVED
    if mark.mark == "not-tuned":
        message = f"target_modules names {mark.example}, which {there} has and this file has not"
        return Status.WARN, f"{message}: it stays untrained", _SAVED
    every = mark.count >= adapter.pairs
    share = "none of its modules is" if every else f"{mark.count} of its modules are not"
    remedy = "use the base model that it was trained with"
    return Status.FAIL if every else Status.WARN, f"{share} in {there} ({mark.example})", remedy


CHECK = Check(
    id="adapter-will-load",
    claim="LoRA adapters load into their base model, and change something there.",
    how=(
        "Reads each safetensors file with LoRA weights, never the model. A header that the library "
        "refuses is one. Keys that PEFT does not look for (wrappers' names, a doubled or missing "
        "prefix, an adapter's name) are dropped with a mere warning when it loads, so the adapter "
        "is a no-op; one that is zero or scaled by zero is that too, and NaN in it spoils all. "
        "Where adapter_config.json lies beside it, its settings are compared with what PEFT takes "
        "and with the tensors, and module names with the base model, where one on this machine "
        "is named. Other types than LoRA are not looked at."
    ),
    classes=("L",),
    remedy="Save the adapter again from the unwrapped model.",
    run=_run,
)
