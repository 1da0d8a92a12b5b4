"""All smokes: what jobs use most first."""

from __future__ import annotations

from envcheck.guest.smokes import (
    apex,
    bitsandbytes,
    causal_conv1d,
    cupy,
    deepspeed,
    flash_attn,
    flash_attn_interface,
    flashinfer,
    gsplat,
    jax,
    mamba_ssm,
    nvdiffrast,
    onnxruntime,
    peft,
    sageattention,
    torchao,
    torchaudio,
    torchvision,
    transformer_engine,
    triton,
    vllm,
    xformers,
)
from envcheck.guest.smokes.smoke import Smoke

SMOKES: tuple[Smoke, ...] = (
    triton.SMOKE,
    torchvision.SMOKE,
    flash_attn.SMOKE,
    xformers.SMOKE,
    bitsandbytes.SMOKE,
    vllm.SMOKE,
    flashinfer.SMOKE,
    torchao.SMOKE,
    transformer_engine.SMOKE,
    flash_attn_interface.SMOKE,
    torchaudio.SMOKE,
    peft.SMOKE,
    deepspeed.SMOKE,
    apex.SMOKE,
    causal_conv1d.SMOKE,
    mamba_ssm.SMOKE,
    sageattention.SMOKE,
    gsplat.SMOKE,
    nvdiffrast.SMOKE,
    cupy.SMOKE,
    onnxruntime.SMOKE,
    jax.SMOKE,
)
