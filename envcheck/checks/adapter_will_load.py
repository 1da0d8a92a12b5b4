"""A LoRA adapter loads into its base model, and changes something there."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.artefacts import Adapter
from envcheck.core.model import Domain, Finding, Json, Status

_SAVED = "save it again from the unwrapped model: model.save_pretrained(folder)"
# mark -> (what it means, remedy, whether PEFT's configuration must lie beside it). Measured with
# PEFT 0.21.2 by loading such adapters: the first four load without an error and the model is as
# if untrained, with one half of a pair it is not as trained, with another rank PEFT raises.
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
    "other-rank": (
        "tensors of another rank than `r` in adapter_config.json",
        "put the adapter_config.json beside it that it was trained with",
        True,
    ),
}


def _run(question: Question) -> Iterator[Finding]:
    adapters = question.inventory.adapters
    if not adapters:
        yield CHECK.skip("adapters", "no LoRA adapter (.safetensors) is in what was looked at")
    for adapter in adapters:
        yield from _judge(adapter)


def _judge(adapter: Adapter) -> Iterator[Finding]:
    evidence: dict[str, Json] = {
        "pairs": adapter.pairs,
        "marks": {m.mark: m.count for m in adapter.marks},
        "zero": adapter.zero,
        "base": adapter.base,
    }
    wrong = list(_wrong(adapter))
    for status, message, remedy in wrong:
        yield CHECK.finding(
            adapter.path,
            status,
            message,
            remedy=remedy,
            domain=Domain.JOB,
            evidence=evidence,
        )
    if not wrong:
        base = f", compared with {adapter.base}" if adapter.base else ""
        message = f"{adapter.pairs} pair(s) of lora_A and lora_B{base}, none of which is zero"
        if adapter.unread:
            message += f" as far as they were read ({adapter.unread} were not)"
        yield CHECK.finding(
            adapter.path, Status.PASS, message, domain=Domain.JOB, evidence=evidence
        )


def _wrong(adapter: Adapter) -> Iterator[tuple[Status, str, str]]:
    if adapter.problem is not None:
        yield Status.FAIL, f"cannot be loaded: {adapter.problem}", "fetch or save the file again"
        return
    for mark in adapter.marks:
        means, remedy, of_peft = _MEANS[mark.mark]
        if adapter.configured or not of_peft:
            yield Status.FAIL, f"{mark.count} time(s) {means} ({mark.example})", remedy
    pairs = adapter.pairs
    if adapter.zero and adapter.zero >= pairs and not adapter.unread:
        message = f"all {adapter.zero} lora_B are zero: it changes nothing, as before training"
        yield Status.FAIL, message, "train it again, and save it after the optimizer's steps"
    elif adapter.zero:
        message = f"{adapter.zero} of {pairs} lora_B are zero: these modules learned nothing"
        yield Status.WARN, message, "look whether these modules got gradients"
    unmatched = adapter.unmatched
    if unmatched is not None:
        every = unmatched.count >= pairs
        share = "none of its modules is" if every else f"{unmatched.count} of its modules are not"
        message = f"{share} in the base model {adapter.base} ({unmatched.example})"
        yield (
            Status.FAIL if every else Status.WARN,
            message,
            "use the base model that it was trained with",
        )


CHECK = Check(
    id="adapter-will-load",
    claim="LoRA adapters load into their base model, and change something there.",
    how=(
        "Reads the header of each safetensors file with LoRA weights, never the model. Keys that "
        "PEFT does not look for (wrappers' names, a doubled or missing prefix, an adapter's "
        "name) are dropped with a mere warning when it loads, so the adapter is a no-op. Reads "
        "each `lora_B` up to the first byte that is not zero, since all zeros is an adapter "
        "that was never trained, and compares module names with the base model where "
        "adapter_config.json names one on this machine."
    ),
    classes=("L",),
    remedy="Save the adapter again from the unwrapped model.",
    run=_run,
)
