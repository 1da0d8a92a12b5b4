"""flash-attn 2: its attention, forward and backward."""

from __future__ import annotations

import importlib
from typing import Any

from envcheck.guest.ops.op import Tensor
from envcheck.guest.smokes import heads
from envcheck.guest.smokes.smoke import Smoke

_NAME = "flash_attn"


def _attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Any:
    return importlib.import_module(_NAME).flash_attn_func(q, k, v, causal=causal)


SMOKE = Smoke(
    module=_NAME,
    distributions=("flash-attn",),
    ops=(
        heads.op(
            "flash_attn.flash_attn_func",
            _NAME,
            heads.calling(_attend),
            dtypes=heads.rules("bf16", "fp16"),
            sizes=(*heads.SIZES, heads.GROUPED),
        ),
    ),
    tried=False,
)
