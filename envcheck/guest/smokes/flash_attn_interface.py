"""flash-attn 3, for Hopper: its attention, forward and backward."""

from __future__ import annotations

import importlib
from typing import Any

from envcheck.guest.ops.op import Tensor
from envcheck.guest.smokes import heads
from envcheck.guest.smokes.smoke import Smoke

_NAME = "flash_attn_interface"


def _attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Any:
    out = importlib.import_module(_NAME).flash_attn_func(q, k, v, causal=causal)
    # Until 2025 the logarithms of the sums came with it.
    return out[0] if isinstance(out, tuple) else out


SMOKE = Smoke(
    module=_NAME,
    distributions=("flash-attn-3",),
    ops=(
        heads.op(
            "flash_attn_interface.flash_attn_func",
            _NAME,
            heads.calling(_attend),
            dtypes=heads.rules("bf16", "fp16", min_sm="sm_90"),
            sizes=(*heads.SIZES, heads.GROUPED),
        ),
    ),
    tried=False,
)
