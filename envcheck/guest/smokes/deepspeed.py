"""DeepSpeed: its fused optimizer, which is compiled when it is first asked for."""

from __future__ import annotations

import importlib
from typing import Any

from envcheck.guest.ops.op import Tensor
from envcheck.guest.smokes import adam
from envcheck.guest.smokes.smoke import Smoke

_NAME = "deepspeed"
_COMPILING = 300
"""Seconds: nvcc builds what was not built when the package was installed."""


def _adam(parameters: list[Tensor]) -> Any:
    return importlib.import_module("deepspeed.ops.adam").FusedAdam(
        parameters, adam_w_mode=True, **adam.OPTIONS
    )


SMOKE = Smoke(
    module=_NAME,
    distributions=("deepspeed",),
    ops=(adam.op("deepspeed.FusedAdam", _NAME, adam.fused(_adam), deadline=_COMPILING),),
    tried=True,
)
