"""What PEFT does with good adapters and faulty ones: what envcheck's rules are measured by.

Needs PEFT, transformers and torch beside envcheck; the table of faults is of PEFT 0.21.2.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from adapter_faults import ADAPTERS, FAULTS, Fault, made
from inventories import ask

from envcheck import pipeline
from envcheck.core.adapter_settings import TYPES

torch = pytest.importorskip("torch", reason="adapters are loaded with PEFT, which needs torch")
peft = pytest.importorskip("peft", reason="adapters are loaded with PEFT")
pytest.importorskip("transformers", reason="the base models are those of transformers")

sys.path.insert(0, str(Path(__file__).parent / "data"))
import build_adapters as built  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # PEFT's, not ours
    pytest.mark.skipif(
        tuple(map(int, peft.__version__.split(".")[:2])) < (0, 21),
        reason="the table is of PEFT 0.21.2",
    ),
]


def _base(case: str) -> Any:
    torch.manual_seed(0)
    return built.CASES[case][0]().eval()


def _logits(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(1, 9)[None]).logits


def _does(case: str, folder: Path) -> str:
    """Load an adapter and say what the model then computes."""
    trained = _logits(peft.PeftModel.from_pretrained(_base(case), str(ADAPTERS / case)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.PeftModel.from_pretrained(_base(case), str(folder))
    except Exception:  # noqa: BLE001 - whatever it raises, it did not load
        return "raises"
    now = _logits(model)
    if torch.allclose(now, trained, atol=1e-6):
        return "as trained"
    return "as base" if torch.equal(now, _logits(_base(case))) else "other"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_peft_does_with_each_fault_what_the_table_says(fault: Fault, tmp_path: Path) -> None:
    assert _does(fault.good, made(fault, tmp_path / "adapter")) == fault.peft


@pytest.mark.parametrize("case", sorted({fault.good for fault in FAULTS}))
def test_the_good_ones_change_what_the_model_computes(case: str) -> None:
    assert _does(case, ADAPTERS / case) == "as trained"
    trained = peft.PeftModel.from_pretrained(_base(case), str(ADAPTERS / case))
    assert not torch.equal(_logits(trained), _logits(_base(case)))


# Bases beside adapters: what PEFT does when the adapter is loaded into the base that it names.


def _llama(**changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**{**built.LLAMA, **changes}))


def _qwen2_vl() -> Any:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    text = {**built.LLAMA, "vocab_size": 32, "rope_parameters": None}
    text["rope_scaling"] = {"type": "default", "mrope_section": [1, 1, 0]}
    vision = {"depth": 1, "embed_dim": 8, "hidden_size": 8, "num_heads": 2, "mlp_ratio": 2}
    tokens = {"bos_token_id": 0, "eos_token_id": 1, "image_token_id": 2, "video_token_id": 3}
    return Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(text_config=text, vision_config=vision, **tokens)
    )


def _wrapped(model: Any) -> Any:
    return torch.nn.DataParallel(model)


def _resized(model: Any) -> Any:
    model.resize_token_embeddings(20)
    return model


class _Foo(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.foo = model


QV = {"target_modules": built.QV}
SAVED = {**QV, "modules_to_save": ["lm_head", "embed_tokens"]}
# Name -> the base, the model that was trained, settings, what PEFT does, what envcheck says.
BASES: dict[str, tuple[Any, Any, dict[str, Any], str, str]] = {
    "its own": (_llama, _llama, QV, "loads", "pass: compared with"),
    "its own, saved whole": (_llama, _llama, SAVED, "loads", "pass: compared with"),
    "its own, of an embedding": (_llama, _llama, {"target_modules": ["embed_tokens"]},
        "loads", "pass: compared with"),
    "its own, of convolutions": (built.gpt2, built.gpt2, {"target_modules": ["c_attn", "c_fc"]},
        "loads", "pass: compared with"),
    "another size": (_llama, lambda: _llama(hidden_size=16), QV, "raises", "fail: another size"),
    "another size of an embedding": (_llama, lambda: _llama(hidden_size=16),
        {"target_modules": ["embed_tokens"]}, "raises", "fail: another size"),
    "a larger vocabulary": (_llama, lambda: _resized(_llama()), SAVED, "raises",
        "warn: resize_token_embeddings"),
    "a larger vocabulary, tuned": (_llama, lambda: _resized(_llama()),
        {"target_modules": ["q_proj", "lm_head"]}, "raises", "warn: resize_token_embeddings"),
    "in DataParallel": (_llama, lambda: _wrapped(_llama()), QV, "as base", "fail: of a wrapper"),
    "in another module": (_llama, lambda: _Foo(_llama()), QV, "as base", "fail: a name more than"),
    "of one layer": (_llama, lambda: _llama(num_hidden_layers=1), QV, "loads",
        "warn: layers.1.self_attn.q_proj"),
    "of one layer, on purpose": (_llama, _llama, {**QV, "layers_to_transform": [0]}, "loads",
        "pass: compared with"),
    "of more layers": (_llama, lambda: _llama(num_hidden_layers=3), QV, "loads",
        "warn: 2 of its modules are not"),
    "layers replicated": (_llama, _llama, {**QV, "layer_replication": [[0, 2], [1, 2]]}, "loads",
        "pass: compared with"),
    "all of a mixture": (built.mixtral, built.mixtral, {"target_modules": "all-linear"}, "loads",
        "pass: compared with"),
    "parameters named alone": (built.mixtral, built.mixtral,
        {"target_modules": [], "target_parameters": ["gate_up_proj"]}, "loads",
        "pass: compared with"),
    "a module saved whole, of another size": (_llama, lambda: _llama(intermediate_size=16),
        {**QV, "modules_to_save": ["up_proj"]}, "raises", "fail: 2 tensor(s) of another size"),
    "of several models": (_qwen2_vl, _qwen2_vl, QV, "loads", "pass: compared with"),
}  # fmt: skip


@pytest.mark.parametrize("name", BASES)
def test_an_adapter_beside_a_base(name: str, tmp_path: Path) -> None:
    make, trained, settings, does, said = BASES[name]
    torch.manual_seed(0)
    make().save_pretrained(str(tmp_path / "base"))
    tuned = peft.get_peft_model(trained(), peft.LoraConfig(r=4, **settings))
    for key, weight in tuned.named_parameters():
        if "lora_" in key:
            weight.data = torch.randn_like(weight) / 8
    tuned.save_pretrained(str(tmp_path / "adapter"), save_embedding_layers=False)
    said_by_peft = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    said_by_peft["base_model_name_or_path"] = str(tmp_path / "base")
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(said_by_peft))

    assert _loaded(make, tmp_path, _weights(tuned)) == does
    findings = ask("adapter-will-load", pipeline.scan([str(tmp_path / "adapter")], _quiet), "sm_90")
    status, _, part = said.partition(": ")
    (finding,) = findings
    assert finding.status.value == status, finding.message
    assert part in finding.message + finding.remedy


def _quiet(_: str, __: int | None) -> None:
    """Progress is not looked at."""


def _weights(tuned: Any) -> dict[str, Any]:
    return dict(peft.get_peft_model_state_dict(tuned, save_embedding_layers=False))


def _loaded(make: Any, folder: Path, wanted: dict[str, Any]) -> str:
    """Load the adapter into its base: `loads` is that what is there is what was trained."""
    model = type(make()).from_pretrained(str(folder / "base"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tuned = peft.PeftModel.from_pretrained(model, str(folder / "adapter"))
    except RuntimeError:
        return "raises"
    there = _weights(tuned)
    same = [torch.equal(there[key], value) for key, value in wanted.items() if key in there]
    return "loads" if same and all(same) else "as base"


def test_pefts_types_are_those_of_the_table() -> None:
    assert {kind.value for kind in peft.PeftType} == TYPES - {"BONE"}
