"""LoRA adapters, as `scan` finds and judges them (recipe R28)."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from adapter_faults import ADAPTERS, FAULTS, Fault, made
from inventories import ask, judged

from envcheck import pipeline
from envcheck.core import codec
from envcheck.core.model import Finding, Inventory, Verdict
from envcheck.guest import adapter_targets, tensor_values
from envcheck.guest.safetensors import Tensor

LOADS = "adapter-will-load"
ALL_ADAPTERS = ADAPTERS.parent


def scan(*paths: Path) -> Inventory:
    return pipeline.scan([str(p) for p in paths], lambda _, __: None)


def found(inventory: Inventory) -> list[tuple[str, bool]]:
    return [(f.status.value, f.required) for f in ask(LOADS, inventory, "sm_90")]


def only(inventory: Inventory) -> Finding:
    (finding,) = ask(LOADS, inventory, "sm_90")
    return finding


# Adapters: the same variants were loaded with PEFT 0.21.2 on a module of two Linear layers, and
# its output compared: as trained for `good` and `default`; as if never trained for wrapped,
# doubled, named, bare and zero; neither for single; an error for another rank.
Tensors = dict[str, tuple[list[int], bytes]]


def good() -> Tensors:
    one = struct.pack("<f", 1.0)
    return {
        f"base_model.model.{module}.lora_{side}.weight": (shape, one * (shape[0] * shape[1]))
        for module in ("l", "m")
        for side, shape in (("A", [4, 8]), ("B", [8, 4]))
    }


def safetensors(tensors: Tensors) -> bytes:
    header, data = {}, b""
    for key, (shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[key] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        data += raw
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + data


def adapter(folder: Path, tensors: Tensors, config: Mapping[str, object] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "adapter_model.safetensors"
    path.write_bytes(safetensors(tensors))
    if config is not None:
        (folder / "adapter_config.json").write_text(
            json.dumps({"peft_type": "LORA", "r": 4, **config})
        )
    return path


def renamed(change: Callable[[str], str]) -> Tensors:
    return {change(key): value for key, value in good().items()}


def zeroed(raw: bytes, *modules: str) -> Tensors:
    return {
        key: (shape, raw * (len(data) // len(raw)) if ".lora_B" in key and key.split(".")[2] in modules else data)
        for key, (shape, data) in good().items()
    }  # fmt: skip


VARIANTS: dict[str, tuple[Tensors, str, str]] = {
    "good": (good(), "pass", "2 pair(s)"),
    "default": (renamed(lambda k: k.replace(".weight", ".default.weight")), "pass", "2 pair(s)"),
    # R28: `_orig_mod.` in its keys, all-zero lora_B.
    "wrapped": (
        renamed(lambda k: k.replace("model.model.", "model.model._orig_mod.")),
        "fail",
        "wrapper",
    ),
    "fsdp": (renamed(lambda k: k.replace(".l.", "._fsdp_wrapped_module.l.")), "fail", "wrapper"),
    "zero": (
        zeroed(bytes(4), "l", "m"),
        "fail",
        "all 2 pairs have a lora_B or lora_A of zeros: it changes nothing",
    ),
    "minus zero": (
        zeroed(struct.pack("<f", -0.0), "l", "m"),
        "fail",
        "all 2 pairs have a lora_B or lora_A of zeros: it changes nothing",
    ),
    "half zero": (zeroed(bytes(4), "l"), "warn", "1 of 2 pairs have a lora_B or lora_A of zeros"),
    # R28b: the adapter's name in its keys, a doubled prefix.
    "named": (renamed(lambda k: k.replace(".weight", ".lora.weight")), "fail", "adapter's name"),
    "doubled": (renamed(lambda k: "base_model.model." + k), "fail", "twice"),
    "bare": (renamed(lambda k: k.removeprefix("base_model.model.")), "fail", "without"),
    "single": (
        {k: v for k, v in good().items() if k != "base_model.model.l.lora_B.weight"},
        "fail",
        "only one of",
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_r28_adapters(tmp_path: Path, name: str) -> None:
    tensors, expected, why = VARIANTS[name]
    adapter(tmp_path, tensors, {})
    inventory = scan(tmp_path)
    finding = only(inventory)
    assert finding.status.value == expected
    assert why in finding.message
    verdict = Verdict.INCOMPATIBLE if expected == "fail" else Verdict.COMPATIBLE
    assert judged(inventory, "sm_90").verdict is verdict
    assert codec.loads(Inventory, codec.dumps(inventory), name="x") == inventory


def test_r28_without_pefts_configuration_only_what_fails_everywhere_fails(tmp_path: Path) -> None:
    for name in ("named", "bare", "wrapped"):
        path = adapter(tmp_path / name, VARIANTS[name][0])
        path.rename(path.with_name("lora.safetensors"))
    for name in ("named", "bare"):
        assert found(scan(tmp_path / name)) == [("pass", True)]
    assert found(scan(tmp_path / "wrapped")) == [("fail", True)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"r": 5}, "fail"),
        ({"r": 2}, "fail"),
        ({"r": 5, "rank_pattern": {"l": 4}}, "fail"),
        ({"r": 5, "rank_pattern": {"l": 4, "m": 4}}, "pass"),
    ],
)
def test_another_rank_than_the_configurations(
    tmp_path: Path, config: dict[str, object], expected: str
) -> None:
    adapter(tmp_path, good(), config)
    assert only(scan(tmp_path)).status.value == expected


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (("l.weight", "m.weight"), "pass"),
        (("transformer.l.weight", "transformer.m.weight"), "pass"),
        # Transformers 5 has other names for modules than the checkpoint of a mixture of experts.
        (("l.weight",), "pass"),
        (("q.weight",), "fail"),
    ],
)
@pytest.mark.parametrize("indexed", [True, False])
def test_keys_are_compared_with_a_base_that_is_here(
    tmp_path: Path, base: tuple[str, ...], expected: str, indexed: bool
) -> None:
    model = tmp_path / "base"
    model.mkdir()
    if indexed:
        index = {"weight_map": dict.fromkeys(base, "model-1.safetensors")}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        tensors: Tensors = {key: ([8, 8], bytes(256)) for key in base}
        (model / "model.safetensors").write_bytes(safetensors(tensors))
    adapter(tmp_path / "adapter", good(), {"base_model_name_or_path": str(model)})
    finding = only(scan(tmp_path / "adapter"))
    assert finding.status.value == expected


@pytest.mark.parametrize(
    ("layers", "expected"), [((0, 1), "pass"), ((0,), "warn"), ((0, 1, 2), "pass")]
)
def test_a_base_with_fewer_layers_is_told(
    tmp_path: Path, layers: tuple[int, ...], expected: str
) -> None:
    index = {"weight_map": {f"model.layers.{n}.q_proj.weight": "1" for n in layers}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    tensors: Tensors = {
        f"base_model.model.model.layers.{n}.q_proj.lora_{side}.weight": ([4, 4], b"\1" * 64)
        for n in (0, 1)
        for side in "AB"
    }
    adapter(tmp_path / "adapter", tensors, {"base_model_name_or_path": str(tmp_path)})
    assert only(scan(tmp_path / "adapter")).status.value == expected


def test_a_base_on_a_hub_is_not_looked_for(tmp_path: Path) -> None:
    adapter(tmp_path, good(), {"base_model_name_or_path": "meta-llama/Llama-3.1-8B"})
    assert found(scan(tmp_path)) == [("pass", True)]


def test_a_model_is_no_adapter(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors({"l.weight": ([1, 1], bytes(4))}))
    inventory = scan(tmp_path)
    assert (inventory.adapters, inventory.passed_over) == ((), 1)


WHOLE = safetensors(good())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (WHOLE[:-1], "cut off"),
        (WHOLE[:100], "header of"),
        (WHOLE[:4], "header of"),
        (b"", "header of"),
        (struct.pack("<Q", 1 << 60) + b"{}", "header of"),
        (struct.pack("<Q", 2) + b"{]", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not an object"),
        (struct.pack("<Q", 100000) + b"[" * 100000, "not JSON"),
        (struct.pack("<Q", 9) + b'{"a": []}', "the dtype 'None'"),
    ],
)
def test_broken_adapters_are_facts(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "adapter_model.safetensors").write_bytes(content)
    finding = only(scan(tmp_path))
    assert (finding.status.value, finding.required) == ("fail", True)
    assert why in finding.message


# What PEFT itself wrote, of several releases: see data/adapters/README.md.
WRITTEN = sorted(path.parent for path in ALL_ADAPTERS.glob("*/*/adapter_model.safetensors"))
NO_LORA = {"adalora": "ADALORA", "ia3": "IA3"}


@pytest.mark.parametrize("folder", WRITTEN, ids=lambda f: f"{f.parent.name}-{f.name}")
def test_what_peft_wrote_is_no_fault(folder: Path) -> None:
    finding = only(scan(folder))
    if folder.name in NO_LORA:
        assert (finding.status.value, finding.required) == ("skip", False)
        assert f"its peft_type is {NO_LORA[folder.name]}" in finding.message
    elif folder.parent.name == "0.10.0" and folder.name == "rank-pattern":
        # PEFT 0.21.2 reads the pattern otherwise than 0.10.0 did, and raises.
        assert (finding.status.value, finding.remedy) == ("warn", "pip install 'peft<0.15'")
    else:
        assert finding.status.value == "pass", finding.message


def test_what_was_only_skipped_is_not_found_compatible() -> None:
    skipped = scan(ADAPTERS / "ia3")
    report = judged(skipped, "sm_90")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "its peft_type is IA3: only LoRA is looked at" in str(report.summary["line"])
    # One beside it that was looked at decides, and skipped checks are not counted with it.
    report = judged(scan(ADAPTERS / "ia3", ADAPTERS / "linear"), "sm_90")
    assert report.verdict is Verdict.COMPATIBLE
    # The adapter, and the driver that the card asks for.
    assert str(report.summary["line"]).startswith(
        "compatible with sm_90: 2 check(s) found no fault"
    )


def test_a_type_of_a_newer_peft_is_skipped(tmp_path: Path) -> None:
    adapter(tmp_path, good(), {"peft_type": "LORAX", "peft_version": "0.22.0"})
    assert found(scan(tmp_path)) == [("skip", False)]
    adapter(tmp_path, good(), {"peft_type": "LORAX", "peft_version": "0.21.2"})
    assert found(scan(tmp_path)) == [("fail", True)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults_of_adapters_are_told(fault: Fault, tmp_path: Path) -> None:
    inventory = scan(made(fault, tmp_path / "adapter"))
    findings = ask(LOADS, inventory, "sm_90")
    status, _, part = fault.says.partition(": ")
    told = [f for f in findings if all(one in f.message for one in part.split("…"))]
    assert [f.status.value for f in told] == [status], [f.message for f in findings]
    # A remedy for each fault, and no second opinion beside a pass.
    assert all(f.remedy for f in findings if f.status.value in ("fail", "warn"))
    assert status in ("fail", "warn") or len(findings) == 1
    assert codec.loads(Inventory, codec.dumps(inventory), name="x") == inventory


def test_a_pattern_that_never_ends_is_said_not_to_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_targets, "_DEADLINE", 0.5)
    tensors = {k.replace(".l.", f".{'a' * 40}!."): v for k, v in good().items()}
    adapter(tmp_path, tensors, {"target_modules": "(a+)+b"})
    findings = ask(LOADS, scan(tmp_path), "sm_90")
    assert [f.status.value for f in findings] == ["pass", "skip"]
    assert "takes too long" in findings[1].message


@pytest.mark.parametrize(
    ("dtype", "element", "finite"),
    [
        ("F64", struct.pack("<d", 1.7e308), True),
        ("F64", struct.pack("<d", float("-inf")), False),
        ("F32", struct.pack("<f", 3.4e38), True),
        ("F32", struct.pack("<f", float("nan")), False),
        ("BF16", b"\x7f\x7f", True),  # the largest number of bfloat16
        ("BF16", b"\x80\xff", False),  # -infinity
        ("F16", struct.pack("<e", 65504.0), True),
        ("F16", struct.pack("<e", float("inf")), False),
        ("F8_E5M2", b"\x7b", True),  # 57344, the largest
        ("F8_E5M2", b"\x7c", False),
        ("F8_E4M3", b"\x7e", True),  # 448, the largest
        ("F8_E4M3", b"\xff", False),
        ("I8", b"\x7f", True),
    ],
)
def test_what_is_not_finite_is_found_wherever_it_stands(
    tmp_path: Path, dtype: str, element: bytes, finite: bool
) -> None:
    count = (1 << 20) // len(element) + 3  # more than is read at once
    for at in (0, count - 4, count - 1):
        path = tmp_path / f"{at}"
        plain = bytes(len(element))
        path.write_bytes(b"x" + plain * at + element + plain * (count - 1 - at))
        with path.open("rb", buffering=0) as handle:
            size = count * len(element)
            seen = tensor_values.look(handle, Tensor(dtype, (count,), 1, 1 + size))
        assert (seen.zero, seen.finite) == (False, finite)


def test_a_large_finite_neighbour_of_a_small_one_is_no_nan(tmp_path: Path) -> None:
    # Bytes that would be NaN across the border of two elements.
    path = tmp_path / "x"
    path.write_bytes(struct.pack("<2f", 3.4e38, 1.0) + b"\x00\x00\xff\x41" + b"\xff\xff\x7f\x40")
    with path.open("rb", buffering=0) as handle:
        assert tensor_values.look(handle, Tensor("F32", (4,), 0, 16)).finite


@pytest.mark.parametrize(
    ("settings", "keys", "expected"),
    [
        # PEFT 0.21.2 raises KeyError for a module of modules_to_save that the file lacks.
        (
            {"modules_to_save": ["lm_head"]},
            ["lm_head.weight"],
            "fail: modules_to_save names lm_head",
        ),
        ({"modules_to_save": ["classifier"]}, ["lm_head.weight"], "pass: compared with"),
        ({"target_modules": ["l", "m", "n"]}, ["n.weight"], "warn: target_modules names n"),
        ({"target_modules": ["l", "m", "n"]}, ["k.weight"], "pass: compared with"),
    ],
)
def test_what_the_settings_name_and_only_the_base_has(
    tmp_path: Path, settings: dict[str, object], keys: list[str], expected: str
) -> None:
    index = {"weight_map": dict.fromkeys(["l.weight", "m.weight", *keys], "1")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    adapter(tmp_path / "adapter", good(), {**settings, "base_model_name_or_path": str(tmp_path)})
    require(tmp_path / "adapter", expected)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (None, "as none is named beside it"),
        ("", "as none is named beside it"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B is no folder here"),
    ],
)
def test_that_no_base_was_compared_is_said(tmp_path: Path, named: str | None, said: str) -> None:
    adapter(tmp_path, good(), {"base_model_name_or_path": named})
    assert said in only(scan(tmp_path)).message


def test_settings_of_another_library_are_not_taken_for_pefts(tmp_path: Path) -> None:
    path = adapter(tmp_path, good())
    path.rename(tmp_path / "weights.safetensors")
    (tmp_path / "adapter_config.json").write_text('{"fine_tune_type": "lora", "r": 0}')
    assert found(scan(tmp_path)) == [("pass", True)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.mkdir(), "adapter_config.json is not a file"),
        (lambda path: path.symlink_to("nowhere"), "adapter_config.json is not a file"),
        (lambda path: path.write_bytes(b" " * ((1 << 20) + 1)), "is larger than 1048576 bytes"),
        (lambda path: path.write_bytes(b"\xff\xfe{}"), "is not JSON"),
        (lambda path: path.write_bytes(b"[" * 100_000), "is not JSON"),
    ],
)
def test_settings_that_cannot_be_read_are_a_fault(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    adapter(tmp_path, good())
    make(tmp_path / "adapter_config.json")
    finding = only(scan(tmp_path))
    assert (finding.status.value, said in finding.message) == ("fail", True), finding.message


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_what_this_user_may_not_read_is_no_fault_of_the_adapter(tmp_path: Path, name: str) -> None:
    adapter(tmp_path, good(), {})
    (tmp_path / name).chmod(0)
    # As a user without rights of its own, which root has.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            if os.getuid() == 0:
                _open_parents(tmp_path)
                os.seteuid(65534)
            os.write(write, codec.dumps(scan(tmp_path)).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, encoding="utf-8") as handle:
        inventory = codec.loads(Inventory, handle.read(), name="x")
    finding = only(inventory)
    assert (finding.status.value, finding.remedy) == ("error", "run as a user who may read it")
    assert "Permission denied" in finding.message
    assert judged(inventory, "sm_90").verdict is Verdict.INCONCLUSIVE


def _open_parents(folder: Path) -> None:
    for one in (folder, *folder.parents):
        if not one.stat().st_mode & 0o001:
            one.chmod(one.stat().st_mode | 0o055)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("module.base_model.model.", "remove `module.` before `base_model.model.`"),
        ("module.", "put `base_model.model.` in the place of `module.`"),
        ("", "put `base_model.model.` before each key"),
        ("base_model.", "save it again"),
    ],
)
def test_the_remedy_for_a_prefix_leads_to_one_that_is_found(
    tmp_path: Path, before: str, said: str
) -> None:
    adapter(tmp_path, renamed(lambda k: before + k.removeprefix("base_model.model.")), {})
    assert only(scan(tmp_path)).remedy.startswith(said)


def sized(shape: list[int]) -> tuple[list[int], bytes]:
    return shape, struct.pack("<f", 1.0) * (shape[0] * shape[1])


def two_layers(before: str, module: str) -> dict[str, tuple[list[int], bytes]]:
    return {
        f"base_model.model.{before}layers.{n}.{module}.lora_{side}.weight": sized(shape)
        for n in (0, 1)
        for side, shape in (("A", [4, 8]), ("B", [8, 4]))
    }


def require(folder: Path, expected: str) -> None:
    """Ask that a scan of a folder says `status: words`, in the one finding that it gives."""
    finding = only(scan(folder))
    status, _, part = expected.partition(": ")
    assert (finding.status.value, part in finding.message) == (status, True), finding.message


# The adapter has modules of 8x8. The names alone are the same in each.
@pytest.mark.parametrize(
    ("shape", "config", "expected"),
    [
        ([8, 8], {}, "pass: compared with"),
        ([8, 4], {}, "fail: of another size than in the base"),
        ([9, 4], {}, "fail: l: 8x8 and not 9x4"),
        # Tokens or labels were added to one, and the job can do that to the other.
        ([9, 8], {}, "warn: unless the job gives the model as many rows"),
        ([8, 4], {"quantization_config": {"bits": 4}}, "pass: by its names alone: its weights"),
    ],
)
def test_sizes_are_compared_with_a_base_that_is_here(
    tmp_path: Path, shape: list[int], config: dict[str, object], expected: str
) -> None:
    base = safetensors({"l.weight": sized(shape), "m.weight": sized(shape)})
    (tmp_path / "model.safetensors").write_bytes(base)
    (tmp_path / "config.json").write_text(json.dumps(config))
    adapter(tmp_path / "adapter", good(), {"base_model_name_or_path": str(tmp_path)})
    require(tmp_path / "adapter", expected)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"1": "layers.0.q.weight", "2": "layers.1.q.weight"}, "fail: 8x8 and not 9x8"),
        ({"1": "layers.0.q.weight"}, "pass: by its names alone: 2 in it cannot be read"),
    ],
)
def test_sizes_are_compared_with_every_file_of_a_base(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    index = {"weight_map": {"layers.0.q.weight": "1", "layers.1.q.weight": "2"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, key in files.items():
        size = [9, 8] if "1" in key else [8, 8]
        (tmp_path / name).write_bytes(safetensors({key: sized(size)}))
    adapter(tmp_path / "adapter", two_layers("", "q"), {"base_model_name_or_path": str(tmp_path)})
    require(tmp_path / "adapter", expected)


@pytest.mark.parametrize(
    ("before", "base", "config", "expected"),
    [
        ("foo.model.", "model.", {}, "fail: a name more"),
        ("model.foo.", "model.", {}, "warn: a name more"),
        ("foo.", "", {}, "warn: a name more"),
        ("model.", "", {}, "pass: compared with"),
        ("bert.encoder.", "", {"model_type": "bert"}, "pass: compared with"),
        ("roberta.", "", {"model_type": "xlm-roberta"}, "pass: compared with"),
        ("", "model.", {}, "pass: compared with"),
        # Of several models the names in the checkpoint are others than in the model.
        ("model.language_model.", "model.", {"vision_config": {}}, "pass: compared with"),
        ("model.language_model.", "language_model.model.", {"text_config": {}}, "pass: compared"),
        ("transformer.", "model.", {}, "fail: none of its modules"),
    ],
)
def test_names_before_those_of_the_base(
    tmp_path: Path, before: str, base: str, config: dict[str, object], expected: str
) -> None:
    keys = [f"{base}layers.{n}.q_proj.weight" for n in (0, 1)]
    (tmp_path / "model.safetensors").write_bytes(safetensors({k: sized([8, 8]) for k in keys}))
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = two_layers(before, "q_proj")
    adapter(tmp_path / "adapter", tensors, {"base_model_name_or_path": str(tmp_path)})
    require(tmp_path / "adapter", expected)


def test_the_layers_of_a_vision_tower_are_not_those_of_the_language_model(tmp_path: Path) -> None:
    keys = {
        "model.vision.encoder.layers.0.q_proj.weight": sized([4, 4]),
        "thinker.layers.0.q_proj.weight": sized([8, 8]),
    }
    (tmp_path / "model.safetensors").write_bytes(safetensors(keys))
    (tmp_path / "config.json").write_text('{"vision_config": {}}')
    tensors = {
        f"base_model.model.model.text.layers.0.q_proj.lora_{side}.weight": sized(shape)
        for side, shape in (("A", [4, 8]), ("B", [8, 4]))
    }
    adapter(tmp_path / "adapter", tensors, {"base_model_name_or_path": str(tmp_path)})
    assert only(scan(tmp_path / "adapter")).status.value == "pass"


# Many a repository has adapters in Git LFS, and a clone without it has pointers.
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:fd6a\nsize 1049\n"


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_pointer_of_git_lfs_is_called_so(tmp_path: Path, name: str) -> None:
    adapter(tmp_path, good(), {})
    (tmp_path / name).write_bytes(POINTER)
    finding = only(scan(tmp_path))
    assert finding.status.value == "fail"
    assert "pointer of Git LFS" in finding.message
    assert finding.remedy == "git lfs pull"
