"""The cards that a process sees, as the driver tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleCard:
    """One card, as the driver describes it."""

    name: str
    """`NVIDIA GeForce RTX 5090`."""
    sm: str
    """`sm_120`."""
    uuid: str
    """`GPU-...`; `MIG-...` of a slice of a card."""
    total_memory: int
    """Bytes."""
    shared_memory_per_block: int
    """Bytes that one block may use, opt-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """What a process that asks the driver is told."""

    library: bool
    """Whether libcuda.so.1 could be loaded."""
    said: str = ""
    """Why not; or the name of what cuInit returned, `CUDA_SUCCESS` included."""
    code: int | None = None
    """What cuInit returned; None where it was not called, or did not return."""
    driver_cuda: str | None = None
    """The newest CUDA that the driver serves: `13.0`."""
    cards: tuple[VisibleCard, ...] = ()
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES; None where it is not set."""
    nodes: tuple[str, ...] = ()
    """`/dev/nvidia0` and the like."""
    driver: str | None = None
    """Version of the kernel module: `580.65.06`; None where there is none."""
    in_container: bool = False
    """Whether the process is in a container, as far as that can be seen."""
