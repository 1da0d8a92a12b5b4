"""Faults of adapters, made from those that PEFT itself wrote, and what PEFT does with each.

`test_adapters.py` asks envcheck about each; `test_adapters_in_peft.py` loads each with the PEFT that
is installed, and compares what the model then computes.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ADAPTERS = Path(__file__).parent / "data" / "adapters" / "0.21.2"
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."
Q0 = f"{PREFIX}model.layers.0.self_attn.q_proj.lora_"
A, B = f"{Q0}A.weight", f"{Q0}B.weight"
LM_HEAD = f"{PREFIX}lm_head.weight"

Tensors = dict[str, tuple[str, list[int], bytes]]
"""Name -> dtype, shape and bytes."""
Change = Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: how it is made, what envcheck says, what PEFT does."""

    name: str
    make: Change
    says: str
    """Status, and parts of the message, with `…` between them."""
    peft: str
    """`raises`, `as base` (it changes nothing), `other` than trained, or `as trained`."""
    good: str = "linear"


def made(fault: Fault, folder: Path) -> Path:
    """Copy the good adapter and put the fault in."""
    shutil.copytree(ADAPTERS / fault.good, folder)
    fault.make(folder)
    return folder


def said(**settings: Any) -> Change:
    """Set settings."""

    def change(folder: Path) -> None:
        path = folder / CONFIG
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))

    return change


def unsaid(name: str) -> Change:
    """Remove a setting."""

    def change(folder: Path) -> None:
        path = folder / CONFIG
        settings = json.loads(path.read_text())
        del settings[name]
        path.write_text(json.dumps(settings))

    return change


def config(content: bytes | None) -> Change:
    """Replace the file of settings, or remove it."""

    def change(folder: Path) -> None:
        (folder / CONFIG).unlink()
        if content is not None:
            (folder / CONFIG).write_bytes(content)

    return change


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the header and the bytes after it."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def header(key: str = A, **entry: Any) -> Change:
    """Change one entry of the header and nothing else."""

    def change(folder: Path) -> None:
        told, data = parts(folder / WEIGHTS)
        told[key].update(entry)
        (folder / WEIGHTS).write_bytes(joined(told, data))

    return change


def raw(edit: Callable[[bytes], bytes]) -> Change:
    """Change the bytes of the file."""

    def change(folder: Path) -> None:
        path = folder / WEIGHTS
        path.write_bytes(edit(path.read_bytes()))

    return change


def tensors(edit: Callable[[Tensors], Tensors]) -> Change:
    """Change tensors, and write a header that fits them."""

    def change(folder: Path) -> None:
        path = folder / WEIGHTS
        told, data = parts(path)
        told.pop("__metadata__", None)
        found = {
            key: (one["dtype"], one["shape"], data[slice(*one["data_offsets"])])
            for key, one in told.items()
        }
        head, body = {}, b""
        for key, (dtype, shape, value) in edit(found).items():
            offsets = [len(body), len(body) + len(value)]
            head[key] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            body += value
        path.write_bytes(joined({"__metadata__": {"format": "pt"}, **head}, body))

    return change


def renamed(edit: Callable[[str], str]) -> Change:
    return tensors(lambda found: {edit(key): value for key, value in found.items()})


def floats(*shape: int, value: float = 1.0) -> tuple[str, list[int], bytes]:
    count = 1
    for size in shape:
        count *= size
    return "F32", list(shape), struct.pack("<f", value) * count


def filled(part: str, value: float) -> Change:
    """Fill all tensors whose name has that part."""
    return tensors(
        lambda found: {k: floats(*t[1], value=value) if part in k else t for k, t in found.items()}
    )


def _settings() -> list[Fault]:
    rows: list[tuple[str, Change, str, str]] = [
        ("no settings", config(None), "fail: adapter_config.json is missing", "raises"),
        ("no JSON", config(b"{"), "fail: adapter_config.json is not JSON", "raises"),
        ("a byte order mark", config(b'\xef\xbb\xbf{"peft_type": "LORA"}'),
         "fail: is not JSON", "raises"),
        ("a list", config(b"[]"), "fail: is not a JSON object", "raises"),
        ("an empty object", config(b"{}"), "fail: peft_type is missing", "raises"),
        ("type in small letters", said(peft_type="lora"), "fail: peft_type is 'lora'", "raises"),
        ("a type that there is not", said(peft_type="LORAX"), "fail: peft_type is 'LORAX'", "raises"),
        ("no type", said(peft_type=None), "fail: peft_type is null", "raises"),
        ("another type", said(peft_type="IA3"), "skip: peft_type is IA3", "as base"),
        ("rank left out", unsaid("r"), "fail: another rank than `r`", "raises"),
        ("alpha left out", unsaid("lora_alpha"), "pass: 4 pair(s)", "as trained"),
        ("targets left out", unsaid("target_modules"), "pass: 4 pair(s)", "as trained"),
        ("alpha NaN", said(lora_alpha=float("nan")), "fail: lora_alpha is nan", "other"),
        ("alpha infinite", said(lora_alpha=float("inf")), "fail: lora_alpha is inf", "other"),
        ("alpha 0", said(lora_alpha=0), "fail: a lora_alpha of 0: it changes nothing", "as base"),
        ("alpha 0 by a pattern", said(alpha_pattern={".*_proj": 0}), "fail: changes nothing",
         "as base"),
        ("alpha 0 of some", said(alpha_pattern={"q_proj": 0}), "warn: 2 of 4 pairs", "other"),
        ("alpha 0 but by patterns", said(lora_alpha=0, alpha_pattern={"q_proj": 8, "v_proj": 8}),
         "pass: 4 pair(s)", "as trained"),
        ("alpha a fraction", said(lora_alpha=8.0), "pass: 4 pair(s)", "as trained"),
        ("a pattern of no module", said(rank_pattern={"zzz": 2}), "pass: 4 pair(s)", "as trained"),
        ("rank by pattern", said(rank_pattern={"q_proj": 2}), "fail: tensors of another…(2,",
         "raises"),
        ("rslora by a text", said(use_rslora="false"), "fail: use_rslora is 'false'", "other"),
        ("no task", said(task_type=None), "pass: 4 pair(s)", "as trained"),
        ("begun in capitals", said(init_lora_weights="Gaussian"), "pass: 4 pair(s)", "as trained"),
        ("begun as nothing", said(init_lora_weights=None), "pass: 4 pair(s)", "as trained"),
        ("tokens that it lacks", said(trainable_token_indices=[1]), "fail: trained tokens", "raises"),
        ("rslora by null", said(use_rslora=None), "pass: 4 pair(s)", "as trained"),
        ("biases by another word", said(bias="some"), "fail: bias is 'some'", "raises"),
        ("biases that it lacks", said(bias="all"), "pass: 4 pair(s)", "as trained"),
        ("dora without vectors", said(use_dora=True), "fail: modules without…(4,", "other"),
        ("targets another", said(target_modules=["q_proj"]), "fail: modules that…(2,", "other"),
        ("targets more", said(target_modules=["q_proj", "v_proj", "k_proj"]), "pass: 4 pair(s)",
         "as trained"),
        ("targets none of its own", said(target_modules=["k_proj"]), "fail: modules…(4,",
         "as base"),
        ("targets of an end", said(target_modules=["attn.q_proj", "v_proj"]), "fail: (2,",
         "other"),
        ("targets by whole parts", said(target_modules=["self_attn.q_proj", "v_proj"]),
         "pass: 4 pair(s)", "as trained"),
        ("targets by a text for the end", said(target_modules="q_proj"), "fail: (4,", "raises"),
        ("targets by a nested text", said(target_modules=r"(.*\.)+(q|v)_proj"), "pass: 4 pair(s)",
         "as trained"),
        ("targets as a glob", said(target_modules=["*.q_proj"]), "fail: (4,", "raises"),
        ("excluded", said(exclude_modules=["q_proj"]), "fail: modules that…(2,", "other"),
        ("excluded by a text", said(exclude_modules=".*"), "fail: modules…(4,", "raises"),
        ("of another layer", said(layers_to_transform=[0]), "fail: modules…(2,", "other"),
        ("of no layer", said(layers_to_transform=[]), "pass: 4 pair(s)", "as trained"),
        ("saved whole and not there", said(modules_to_save=["q_proj"]), "fail: modules…(2,",
         "raises"),
        ("saved whole, of no module", said(modules_to_save=["zzz"]), "pass: 4", "as trained"),
        ("targets [] beside parameters", said(target_modules=[], target_parameters=[
            "self_attn.q_proj.weight", "self_attn.v_proj.weight"]), "pass: 4", "as trained"),
    ]  # fmt: skip
    refused: dict[str, list[Any]] = {
        "r": [0, -1, "4", 4.0, None, True, 1 << 70],
        "lora_alpha": ["8", None],
        "lora_dropout": ["0", None, 2],
        "rank_pattern": [None, ["q_proj"], {"(": 2}, {"q_proj": 0}, {"q_proj": "4"}],
        "alpha_pattern": [None, {"(": 2}, {"q_proj": "2"}],
        "bias": [None, True],
        "target_modules": [[], "", "(", 3, ["q_proj", 3]],
        "exclude_modules": ["(", 3],
        "modules_to_save": ["lm_head"],
        "target_parameters": ["mlp.experts.down_proj"],
        "layers_to_transform": ["0"],
        "layers_pattern": ["layers"],
        "layer_replication": ["x", [[0]], [["0", 2]], 3, [[0, 1 << 40]]],
        "task_type": ["X", "causal_lm", ""],
        "init_lora_weights": ["x", "true", "EVA", "pissa_x", 3],
        "trainable_token_indices": [[], 3, ["1"]],
    }
    for name, values in refused.items():
        rows += [
            (f"{name} {value!r}", said(**{name: value}), f"fail: {name}", "raises")
            for value in values
        ]
    return [Fault(name=n, make=make, says=says, peft=peft) for n, make, says, peft in rows]


def _swapped(found: Tensors, key: str, value: tuple[str, list[int], bytes]) -> Tensors:
    return {**found, key: value}


def _keys() -> list[Fault]:
    nan, inf = float("nan"), float("inf")
    k_proj = {
        A.replace("q_proj", "k_proj"): floats(4, 8),
        B.replace("q_proj", "k_proj"): floats(8, 4),
    }
    rows: list[tuple[str, Change, str, str]] = [
        ("B of another rank", tensors(lambda t: _swapped(t, B, floats(8, 2))),
         "fail: a `lora_B` of another rank", "raises"),
        ("A of one dimension", tensors(lambda t: _swapped(t, A, floats(32))),
         "fail: tensors of another rank", "raises"),
        ("NaN in B", filled("1.self_attn.v_proj.lora_B", nan), "fail: NaN or infinity", "other"),
        ("infinity in A", filled("1.self_attn.v_proj.lora_A", inf), "fail: NaN or infinity", "other"),
        ("zeros in B", filled("lora_B", 0.0), "fail: it changes nothing", "as base"),
        ("zeros in A", filled("lora_A", -0.0), "fail: it changes nothing", "as base"),
        ("a module more", tensors(lambda t: {**t, **k_proj}), "fail: modules that…(1,",
         "as trained"),
        ("no tensor", tensors(lambda _: {}), "fail: holds no LoRA weights", "as base"),
        ("default in the keys", renamed(lambda k: k.replace(".weight", ".default.weight")),
         "pass: 4 pair(s)", "as trained"),
        ("a doubled prefix", renamed(lambda k: PREFIX + k), "fail: twice", "as base"),
        ("no prefix", renamed(lambda k: k.removeprefix(PREFIX)), "fail: without", "as base"),
        ("half a prefix", renamed(lambda k: k.replace(f"{PREFIX}model.", "base_model.")), "fail: without",
         "as base"),
        ("a prefix before it", renamed(lambda k: f"module.{k}"), "fail: without", "as base"),
        ("a wrapper", renamed(lambda k: k.replace(PREFIX, f"{PREFIX}_orig_mod.", 1)),
         "fail: wrapper", "as base"),
        ("in DDP", renamed(lambda k: k.replace(PREFIX, f"{PREFIX}module.", 1)),
         "fail: wrapper", "as base"),
        ("a weight saved whole of NaN", tensors(lambda t: {**t, LM_HEAD: floats(16, 8, value=nan)}),
         "fail: NaN or infinity", "other"),
        ("an unknown dtype", header(dtype="F99"), "fail: the dtype 'F99'", "raises"),
        ("another dtype", header(dtype="F16"), "fail: contradict", "raises"),
        ("another shape", header(shape=[4, 4]), "fail: contradict", "raises"),
        ("a shape below 0", header(shape=[-4, -8]), "fail: no shape of whole numbers", "raises"),
        ("overlapping tensors", header(B, data_offsets=[0, 128]), "fail: overlaps", "raises"),
        ("offsets backwards", header(data_offsets=[128, 0]), "fail: begin before", "raises"),
        ("more members", header(more=1), "pass: 4 pair(s)", "as trained"),
        ("bytes after the last", raw(lambda b: b + bytes(64)), "fail: belong to none", "raises"),
        ("cut off", raw(lambda b: b[:-4]), "fail: cut off", "raises"),
        ("cut off in its header", raw(lambda b: b[:100]), "fail: safetensors header of", "raises"),
        ("a number as metadata", raw(lambda b: b.replace(b'"pt"', b"1234", 1)),
         "fail: __metadata__", "raises"),
        ("a space before the header", raw(lambda b: struct.pack(
            "<Q", struct.unpack("<Q", b[:8])[0] + 1) + b" " + b[8:]), "pass: 4", "as trained"),
    ]  # fmt: skip
    return [Fault(name=n, make=make, says=says, peft=peft) for n, make, says, peft in rows]


def _others() -> list[Fault]:
    row = Fault
    return [
        row(name="vectors without dora", good="dora", make=said(use_dora=False),
            says="fail: modules with `lora_magnitude_vector`", peft="other"),
        row(name="dora with zeros in B", good="dora", make=filled("lora_B", 0.0),
            says="warn: only its 4 other tensors", peft="other"),
        row(name="biases of B unsaid", good="lora-bias", make=said(lora_bias=False),
            says="fail: biases of `lora_B`", peft="other"),
        row(name="zeros beside biases", good="lora-bias", make=filled("lora_B.weight", 0.0),
            says="warn: only its 2 other tensors", peft="other"),
        row(name="rank of an embedding", good="embedding-alone", make=said(r=2),
            says="fail: another rank than `r`", peft="raises"),
        row(name="tokens more", good="tokens", make=said(trainable_token_indices=[1, 2, 3]),
            says="fail: trained tokens", peft="raises"),
        row(name="tokens fewer", good="tokens", make=said(trainable_token_indices=[1]),
            says="fail: trained tokens", peft="raises"),
        row(name="tokens by module", good="tokens", make=said(trainable_token_indices={
            "embed_tokens": [1, 2]}), says="pass: 4 pair(s)", peft="as trained"),
        row(name="tokens of no module", good="tokens", make=said(trainable_token_indices={
            "zzz": [1, 2]}), says="fail: trained tokens", peft="raises"),
        # The rows that were written are the model's own, which hides what is lost.
        row(name="tokens unsaid", good="tokens", make=said(trainable_token_indices=None),
            says="fail: trained tokens", peft="as trained"),
        row(name="patterns unsaid", good="rank-pattern", make=said(rank_pattern={}),
            says="fail: tensors of another rank…(2,", peft="raises"),
        row(name="blocks unsaid", good="bdlora", make=said(use_bdlora=None),
            says="fail: another rank than its `lora_A`", peft="raises"),
        row(name="parameters unsaid", good="parameters", make=said(target_parameters=None),
            says="fail: target_modules is []", peft="raises"),
        row(name="other parameters", good="parameters", make=said(target_parameters=["x.y"]),
            says="fail: modules that target_modules", peft="raises"),
        row(name="rank of parameters", good="parameters", make=said(r=16),
            says="fail: another rank than `r`", peft="raises"),
    ]  # fmt: skip


FAULTS = [*_settings(), *_keys(), *_others()]
