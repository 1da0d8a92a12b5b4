"""What the CUDA driver says of itself and of the cards that it shows: facts, unjudged."""

from __future__ import annotations

from dataclasses import dataclass

PTX_COMPILER = "libnvidia-ptxjitcompiler.so.1"
"""libcuda opens it to compile PTX."""
MANAGEMENT = "libnvidia-ml.so.1"
"""NVML, which nvidia-smi and packages open that ask for cards without CUDA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCard:
    """One card that is visible to this process."""

    name: str
    """`NVIDIA H200`."""
    sm: str
    """`sm_90`."""
    uuid: str
    """`GPU-...`, or `MIG-...` of a slice; empty where the driver does not say."""
    total_memory: int
    """Bytes."""
    multiprocessors: int
    shared_memory_per_block: int
    """Bytes that one block may use, opt-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """What libcuda answered; of other libraries it is only known whether they are there."""

    missing: str | None = None
    """Why libcuda could not be opened; None where it could."""
    init: int | None = None
    """What cuInit returned: 0 where the driver works; None where it could not be called."""
    init_name: str = ""
    """`CUDA_ERROR_NO_DEVICE`; empty for 0."""
    cuda: str | None = None
    """`13.0`: the CUDA version of this libcuda; None where it does not say."""
    module: str | None = None
    """`580.159.04`: the version of the kernel module; None where no file tells it."""
    cards: tuple[DriverCard, ...] = ()
    """In the order of the driver; empty unless cuInit returned 0."""
    absent: tuple[str, ...] = ()
    """Libraries of the driver that others open by name, and that the loader does not find."""
