"""What changes numbers and is therefore set before every run, whatever the environment says."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from envcheck.guest.ops.torches import torch

PINNED: Mapping[str, Any] = {
    "cuda.matmul.allow_tf32": False,
    "cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "cuda.matmul.allow_bf16_reduced_precision_reduction": False,
    "cuda.matmul.allow_fp16_accumulation": False,
    "cudnn.allow_tf32": False,
    "cudnn.benchmark": False,
    "cudnn.deterministic": False,
}
"""Below `torch.backends`; a torch that lacks one has nothing to set."""
TF32 = {"cuda.matmul.allow_tf32": True, "cudnn.allow_tf32": True}
VARIABLES = {
    # Two buffers in place of a pool that differs by card: it decides which kernels fit.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "TRITON_DEFAULT_FP_FUSION": "1",
    "NVIDIA_TF32_OVERRIDE": None,
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": None,
}
"""Environment variables; None for those that must not be set."""


def pin_variables() -> None:
    """Set the variables; before the process uses the card."""
    for name, value in VARIABLES.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def pin(settings: Mapping[str, Any]) -> dict[str, str]:
    """Set what is below `torch.backends`; returns what could be set."""
    done = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer ones have other names for some of it
        for path, value in settings.items():
            *folders, name = path.split(".")
            place = torch().backends
            for folder in folders:
                place = getattr(place, folder, None)
            try:
                if getattr(place, name, None) is not None:
                    setattr(place, name, value)
                    done[path] = str(value)
            except (AttributeError, RuntimeError):
                continue
    return done


def described() -> dict[str, str]:
    """Set all of it as it is before a run, and return it with the variables."""
    variables = {n: v for n, v in VARIABLES.items() if v is not None}
    return {**pin(PINNED), **variables}
