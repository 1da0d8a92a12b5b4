"""The card that torch would use, as it describes itself."""

from __future__ import annotations

import os
import time

from envcheck.core.executed import Card
from envcheck.guest import nvidia_module
from envcheck.guest.ops.torches import torch


def describe() -> Card:
    """Return the facts about the first card; raises where there is none that can be used."""
    cuda, started = torch().cuda, time.monotonic()
    cuda.init()
    int(torch().ones(1024, device="cuda").sum())
    first_kernel = time.monotonic() - started
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
        driver=nvidia_module.version(),
        mig=mig,
        shared_memory_per_block=getattr(properties, "shared_memory_per_block_optin", None),
        first_kernel=round(first_kernel, 3),
    )
