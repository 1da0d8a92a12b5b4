"""Write tiny adapters with the installed PEFT, on tiny random models of transformers.

    python3 tests/data/build_adapters.py [CASE ...]

writes `adapters/<version of PEFT>/<case>/`. Weights are drawn, not trained; `adapters/README.md`
says which versions wrote what is there. Older releases of PEFT know fewer cases: name those.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ADAPTERS = Path(__file__).parent / "adapters"
QV = ["q_proj", "v_proj"]
SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 16}
LLAMA = {**SMALL, "hidden_size": 8, "intermediate_size": 12, "num_key_value_heads": 2}


def llama() -> Any:
    """Return a model of Linear layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**LLAMA))


def gpt2() -> Any:
    """Return a model of transformers' Conv1D layers, with biases."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokens = {"bos_token_id": 0, "eos_token_id": 1}
    config = GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=16, n_positions=16, **tokens)
    return GPT2LMHeadModel(config)


def mixtral() -> Any:
    """Return a mixture of experts, whose weights are parameters without modules of their own."""
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(**LLAMA, num_local_experts=2))


def layers() -> Any:
    """Return a model of layers that transformers' models hardly have."""
    from torch import nn

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mha = nn.MultiheadAttention(8, 2)
            self.conv = nn.Conv2d(4, 8, 3, groups=2)

    return Layers()


PATTERN = {"layers.0.self_attn.q_proj": 2, r"^model\.layers\.1\.self_attn\.v_proj": 8}
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "linear": (llama, {"target_modules": QV, "task_type": "CAUSAL_LM"}),
    "all-linear": (llama, {"target_modules": "all-linear"}),
    "default-targets": (llama, {}),
    "regex": (llama, {"target_modules": r".*layers\.\d+.*\.(q|v)_proj"}),
    "unused-target": (llama, {"target_modules": [*QV, "query_key_value"]}),
    "rslora": (llama, {"target_modules": QV, "use_rslora": True}),
    "dora": (llama, {"target_modules": QV, "use_dora": True}),
    "rank-pattern": (
        llama,
        {"target_modules": QV, "rank_pattern": PATTERN, "alpha_pattern": {"v_proj": 3}},
    ),
    "modules-to-save": (llama, {"target_modules": QV, "modules_to_save": ["lm_head"]}),
    "embedding": (llama, {"target_modules": ["embed_tokens", "q_proj"]}),
    "embedding-alone": (llama, {"target_modules": ["embed_tokens"]}),
    "tied": (
        llama,
        {"target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True},
    ),
    "one-layer": (
        llama,
        {"target_modules": QV, "layers_to_transform": 1, "layers_pattern": "layers"},
    ),
    "layers-without-pattern": (llama, {"target_modules": QV, "layers_to_transform": [1]}),
    "excluded": (llama, {"target_modules": "all-linear", "exclude_modules": ["down_proj"]}),
    "excluded-by-regex": (llama, {"target_modules": QV, "exclude_modules": r".*layers\.0.*"}),
    "replicated": (llama, {"target_modules": QV, "layer_replication": [[0, 2], [1, 2]]}),
    "tokens": (llama, {"target_modules": QV, "trainable_token_indices": [1, 2]}),
    "conv1d": (gpt2, {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
    "bias-all": (gpt2, {"target_modules": ["c_attn"], "bias": "all", "fan_in_fan_out": True}),
    "lora-bias": (gpt2, {"target_modules": ["c_attn"], "lora_bias": True, "fan_in_fan_out": True}),
    "parameters": (mixtral, {"target_modules": [], "target_parameters": EXPERTS}),
    "parameters-and-modules": (
        mixtral,
        {
            "target_modules": ["q_proj"],
            "target_parameters": EXPERTS[:1],
            "rank_pattern": {"experts.gate_up_proj": 3},
        },
    ),
    "layers": (layers, {"target_modules": ["mha", "conv"]}),
    "bdlora": (llama, {"target_modules": QV}),
    "ia3": (llama, {"target_modules": ["k_proj"], "feedforward_modules": []}),
    "adalora": (llama, {"target_modules": QV, "init_r": 4, "total_step": 10}),
}


def configuration(case: str) -> Any:
    """Return PEFT's configuration of a case."""
    import peft

    settings = CASES[case][1]
    if case == "ia3":
        return peft.IA3Config(**settings)
    if case == "adalora":
        return peft.AdaLoraConfig(**settings)
    if case == "bdlora":
        blocks = {"target_modules_bd_a": ["q_proj"], "target_modules_bd_b": ["v_proj"]}
        settings = {**settings, "use_bdlora": peft.tuners.lora.BdLoraConfig(nblocks=2, **blocks)}
    return peft.LoraConfig(r=4, lora_alpha=8, **settings)


def write(case: str, folder: Path) -> None:
    """Write one adapter whose weights are all drawn, as if it had been trained."""
    import peft
    import torch

    torch.manual_seed(0)
    model = peft.get_peft_model(CASES[case][0](), configuration(case))
    for name, weight in model.named_parameters():
        if "lora_" in name or "ia3_" in name:
            weight.data = torch.randn_like(weight) / 8
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(str(folder), safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)


def main(wanted: list[str]) -> None:
    """Write the cases that are named, or all."""
    import peft

    for case in wanted or CASES:
        write(case, ADAPTERS / peft.__version__ / case)


if __name__ == "__main__":
    main(sys.argv[1:])
