"""Write `device_requirement.json`: PyTorch's own table of which code runs on which device.

    python copy_device_requirement.py > device_requirement.json

Run it with an interpreter that has a CUDA build of PyTorch 2.11 or newer; no GPU is needed.
PyTorch is BSD-3-Clause; only the numbers of the table are copied, expanded over the devices
that it names.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.cuda


def expand(table: dict) -> dict[str, list[int]]:
    devices = sorted(torch.cuda.DEVICE_REQUIREMENT)
    return {str(code): [d for d in devices if d in rule] for code, rule in table.items()}


document = {
    "source": "torch/cuda/__init__.py, BSD-3-Clause",
    "version": torch.__version__,
    "runs_on": expand(torch.cuda.DEVICE_REQUIREMENT),
    "runs_on_since_cuda_13_2": expand(torch.cuda.DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION),
}
sys.stdout.write(json.dumps(document, indent=1) + "\n")
