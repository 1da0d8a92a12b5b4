"""The only environment variables whose values enter an inventory; others may hold secrets."""

from __future__ import annotations

OF_THE_DRIVERS_COMPILER = (
    "CUDA_CACHE_DISABLE",
    "CUDA_DISABLE_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_JIT",
    "CUDA_FORCE_PTX_JIT",
)
"""They forbid or force compiling PTX, and keeping what came of it."""

OF_JAX = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")
"""They name the backend that JAX takes; the first of a list is the one it works on."""

OF_A_JOB = (
    *OF_THE_DRIVERS_COMPILER,
    *OF_JAX,
    "BNB_CUDA_VERSION",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK",
)
"""They choose between the files of a package, between its codes for a card and between cards, or
switch off what would refuse one."""

OF_AN_IMAGE = (
    "CUDA_VERSION",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_VERSION",
    "TORCH_VERSION",
)
"""They say what is in an image, and what it asks of the host."""

HIDDEN = "ENVCHECK_CARDS_HIDDEN"
"""Set for a guest from which envcheck itself hides the cards: what it sees then is no job's."""

SCRATCH = "ENVCHECK_SCRATCH"
"""Names a folder to write to, where what is looked at is mounted so that nothing else takes a file."""
