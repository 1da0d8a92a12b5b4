"""The card that torch would use, as it describes itself."""

from __future__ import annotations

import contextlib
import os
import re

from envcheck.core.executed import Card
from envcheck.guest.ops.torches import torch

_DRIVER_FILE = "/proc/driver/nvidia/version"


def describe() -> Card:
    """Return the facts about the first card; raises where there is none that can be used."""
    cuda = torch().cuda
    cuda.init()
    properties = cuda.get_device_properties(0)
    free, total = cuda.mem_get_info(0)
    mig = "MIG" in properties.name or os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-")
    uuid = str(getattr(properties, "uuid", ""))
    return Card(
        name=properties.name,
        sm=f"sm_{properties.major}{properties.minor}",
        uuid=f"{'MIG' if mig else 'GPU'}-{uuid}" if uuid else "",
        total_memory=total,
        free_memory=free,
        driver=_driver(),
        mig=mig,
    )


def _driver() -> str | None:
    """Return the version of the kernel module, which is the driver's."""
    with contextlib.suppress(OSError), open(_DRIVER_FILE, encoding="utf-8") as handle:
        found = re.search(r"\b\d{3}\.\d+(\.\d+)*\b", handle.readline())
        return found and found[0]
    return None
