"""Stand-ins for packages, written after their documented signatures, in plain torch on a CPU.

They show that a smoke calls its package as documented; a broken one shows that it would be seen.
"""

from __future__ import annotations

import sys
import types

import torch

_LIBRARIES = []


def module(name: str, **content: object) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(content)
    return made


def put(monkeypatch, **modules: types.ModuleType) -> None:
    """Make modules importable; `a__b` is `a.b`, whose parents are made when they are missing."""
    for key, made in modules.items():
        name = key.replace("__", ".")
        parents = name.split(".")
        for depth in range(1, len(parents)):
            parent = ".".join(parents[:depth])
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, module(parent, __path__=[]))
        monkeypatch.setitem(sys.modules, name, made)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1).float() for t in (k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(q.float(), k, v, is_causal=causal, scale=softmax_scale)
    return out.to(q.dtype).transpose(1, 2)


def flash_attn_3_func(q, k, v, softmax_scale=None, causal=False):
    return flash_attn_func(q, k, v, softmax_scale=softmax_scale, causal=causal), None


def single_prefill_with_kv_cache(q, k, v, causal=False, kv_layout="NHD"):
    assert kv_layout == "NHD"
    return flash_attn_func(q[None], k[None], v[None], causal=causal)[0]


def rms_norm(x, w, eps):
    return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], w.float(), eps).to(x.dtype)


def layer_norm(x, w, b, shape, eps=1e-6):
    x, w, b, kind = x.float(), w.float(), b.float(), x.dtype
    return torch.nn.functional.layer_norm(x, shape, w, b, eps).to(kind)


def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, activation=None):
    assert activation is None
    width = weight.shape[1]
    whole = torch.nn.functional.conv1d(
        x.float(), weight[:, None].float(), bias.float(), padding=width - 1, groups=len(weight)
    )
    return whole[..., : x.shape[-1]].to(x.dtype)


def selective_scan_fn(u, delta, a, b, c, d=None, z=None, delta_bias=None, delta_softplus=False):
    state, out = torch.zeros(*u.shape[:2], a.shape[1]), []
    for t in range(u.shape[-1]):
        step = delta[..., t, None]
        state = state * torch.exp(step * a) + step * u[..., t, None] * b[:, None, :, t]
        out.append(torch.einsum("bdn,bn->bd", state, c[..., t]) + d * u[..., t])
    return torch.stack(out, -1)


def quat_scale_to_covar_preci(quats, scales, compute_covar=True, compute_preci=True, triu=False):
    assert compute_covar
    w, x, y, z = torch.nn.functional.normalize(quats, dim=-1).unbind(-1)
    turn = torch.stack(
        [
            *(1 - 2 * (y**2 + z**2), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            *(2 * (x * y + w * z), 1 - 2 * (x**2 + z**2), 2 * (y * z - w * x)),
            *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x**2 + y**2)),
        ],
        -1,
    ).unflatten(-1, (3, 3))
    stretched = turn * scales[:, None]
    return stretched @ stretched.mT, None


class FusedAdam(torch.optim.AdamW):
    def __init__(self, params, lr, betas, eps, weight_decay, adam_w_mode=True):
        assert adam_w_mode
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


class Linear(torch.nn.Linear):
    def __init__(self, in_features, out_features, bias=True, params_dtype=None, device="cuda"):
        super().__init__(in_features, out_features, bias, device=device, dtype=params_dtype)

    def forward(self, x):
        return (x.float() @ self.weight.float().mT).to(x.dtype)


class RMSNorm(torch.nn.Module):
    def __init__(self, normalized_shape, eps=1e-5, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        ones = torch.ones(normalized_shape, device=device, dtype=dtype)
        self.weight = torch.nn.Parameter(ones)

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


def vllm_c() -> types.ModuleType:
    """Register two operations as vLLM does: they write into what they are given."""
    if not _LIBRARIES:
        library = torch.library.Library("_C", "FRAGMENT")
        library.define("rms_norm(Tensor! result, Tensor input, Tensor weight, float eps) -> ()")
        library.define("silu_and_mul(Tensor! result, Tensor input) -> ()")
        library.impl("rms_norm", _rms_norm, "CPU")
        library.impl("silu_and_mul", _silu_and_mul, "CPU")
        _LIBRARIES.append(library)
    return module("vllm._C")


def _rms_norm(out, x, w, eps):
    out.copy_(rms_norm(x, w, eps))


def _silu_and_mul(out, x):
    gate, value = x.float().chunk(2, -1)
    out.copy_((torch.nn.functional.silu(gate) * value).to(x.dtype))


class LowerTriangularMask:
    """What xformers takes for a causal mask."""


def memory_efficient_attention(query, key, value, attn_bias=None, op=None):
    causal = isinstance(attn_bias, LowerTriangularMask)
    return flash_attn_func(query, key, value, causal=causal)


def operator(name: str, *reasons: str) -> type:
    return type(name, (), {"NAME": name, "not_supported_reasons": lambda inputs: list(reasons)})


def xformers() -> dict[str, types.ModuleType]:
    """Return its attention with three operators, one of which wants another card."""
    cutlass = module("c", FwOp=operator("cutlassF-pt"), BwOp=operator("cutlassB-pt"))
    fmha = module(
        "fmha",
        __path__=[],
        ALL_FW_OPS=[cutlass.FwOp, operator("fa3F@0", "too old"), operator("fa2F@0")],
        Inputs=lambda **given: given,
        attn_bias=module("a", LowerTriangularMask=LowerTriangularMask),
        memory_efficient_attention=memory_efficient_attention,
        memory_efficient_attention_forward=memory_efficient_attention,
    )
    ops = module("o", __path__=[], memory_efficient_attention=memory_efficient_attention)
    return {
        "xformers__ops": ops,
        "xformers__ops__fmha": fmha,
        "xformers__ops__fmha__cutlass": cutlass,
    }


def good() -> dict[str, types.ModuleType]:
    return {
        **xformers(),
        "flash_attn": module("flash_attn", flash_attn_func=flash_attn_func),
        "flash_attn_interface": module("f", flash_attn_func=flash_attn_3_func),
        "flashinfer": module(
            "flashinfer",
            single_prefill_with_kv_cache=single_prefill_with_kv_cache,
            rmsnorm=rms_norm,
        ),
        "causal_conv1d": module("causal_conv1d", causal_conv1d_fn=causal_conv1d_fn),
        "mamba_ssm__ops__selective_scan_interface": module(
            "m", selective_scan_fn=selective_scan_fn
        ),
        "gsplat": module("gsplat", quat_scale_to_covar_preci=quat_scale_to_covar_preci),
        "deepspeed__ops__adam": module("d", FusedAdam=FusedAdam),
        "apex__optimizers": module("o", FusedAdam=FusedAdam),
        "apex__normalization__fused_layer_norm": module(
            "n",
            fused_layer_norm_affine=layer_norm,
            fused_rms_norm_affine=lambda x, w, shape, eps: rms_norm(x, w, eps),
        ),
        "transformer_engine__pytorch": module("t", Linear=Linear, RMSNorm=RMSNorm),
        "vllm___C": vllm_c(),
    }
