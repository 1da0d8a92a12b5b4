"""The cards that a process sees, as the driver tells, and what stands around that."""

from __future__ import annotations

from dataclasses import dataclass

from envcheck.core.driver_facts import DriverFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """What a process that asks the driver is told, and what it sees of the machine."""

    driver: DriverFacts | None
    """None where asking did not come to its end."""
    said: str = ""
    """Why it did not."""
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES; None where it is not set."""
    nodes: tuple[str, ...] = ()
    """`/dev/nvidia0` and the like: those that this process may open."""
    forbidden: tuple[str, ...] = ()
    """Those that are here and that it may not open."""
    module: str | None = None
    """Version of the kernel module: `580.65.06`; None where there is none."""
    in_container: bool = False
    """Whether the process is in a container, as far as that can be seen."""
