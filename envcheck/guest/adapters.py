"""LoRA adapters in safetensors files: what their keys, values and settings say.

The header tells the keys (`envcheck.guest.safetensors`). The tensors are read: training starts with
zeros in one of `lora_A` and `lora_B`, so an adapter that still has them changes nothing, and a
training that went wrong leaves NaN in them or in a module that is saved whole.
"""

from __future__ import annotations

import json
import os
from typing import IO

from envcheck.core import adapter_settings
from envcheck.core.artefacts import Adapter, Marked
from envcheck.guest import adapter_base, adapter_config, adapter_keys, safetensors, tensor_values
from envcheck.guest.adapter_config import Config
from envcheck.guest.adapter_keys import NOT_FINITE, Keys
from envcheck.guest.base_weights import Base
from envcheck.guest.reading import open_regular

PEFTS_NAME = "adapter_model.safetensors"
_MAX_READ = 1 << 30


def read(path: str, name: str) -> Adapter | None:
    """Read one safetensors file, None for one without LoRA weights that is not called as PEFT's."""
    for_peft = os.path.basename(path) == PEFTS_NAME
    try:
        with open_regular(path) as handle:
            keys = adapter_keys.group(safetensors.header(handle))
            if not keys.found and not for_peft:
                return None
            config = adapter_config.beside(path)
            # Other libraries have a file of that name too, and none of them PEFT's types.
            if not for_peft and "peft_type" not in (config.settings or {}):
                config = Config(None)
            return _adapter(path, keys, config, _values(handle, keys), name=name, for_peft=for_peft)
    except safetensors.Broken as error:
        # Whether a file without a header that can be read is an adapter, its name must tell.
        called = os.path.basename(path).startswith("adapter_model")
        return Adapter(path=name, for_peft=for_peft, problem=str(error)) if called else None
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        return Adapter(path=name, for_peft=True, problem=why) if for_peft else None


def _adapter(
    path: str,
    keys: Keys,
    config: Config,
    values: tuple[list[str], list[str], int],
    *,
    name: str,
    for_peft: bool,
) -> Adapter:
    zero, not_finite, unread = values
    settings = config.settings
    marks = list(adapter_keys.marks(keys, settings or {}))
    if not_finite:
        marks.append(Marked(mark=NOT_FINITE, count=len(not_finite), example=not_finite[0][:300]))
    base: Base | None = None
    unlike: tuple[Marked, ...] = ()
    unmatched = False
    if settings is not None and _is_judged(settings):
        told = adapter_keys.against(keys, settings)
        unmatched = told is None
        marks += told or ()
        base, unlike = adapter_base.compare(path, settings, keys)
    return Adapter(
        path=name,
        pairs=sum(set(sides) == {"A", "B"} for sides in keys.sides.values()),
        others=len(keys.others),
        for_peft=for_peft,
        settings=json.dumps(settings) if settings is not None else None,
        unconfigured=config.problem,
        marks=tuple(marks),
        zero=len(zero),
        unread=unread,
        unmatched=unmatched,
        base=base.folder if base is not None else None,
        base_unsized=base.unsized if base is not None else None,
        unlike_base=unlike,
    )


def _is_judged(settings: dict[str, object]) -> bool:
    """Say whether the modules can be compared with it: LoRA, and nothing that PEFT refuses."""
    lora = adapter_settings.kind(settings) == adapter_settings.LORA
    return lora and next(adapter_settings.faults(settings), None) is None


def _values(handle: IO[bytes], keys: Keys) -> tuple[list[str], list[str], int]:
    """Return modules with a side of zeros, keys that are not finite, and how many were not read."""
    zero: set[str] = set()
    not_finite: list[str] = []
    unread, left = 0, _MAX_READ
    owners = {key: module for module, sides in keys.sides.items() for key in sides.values()}
    # Those of LoRA first: modules that are saved whole are large.
    for key in (*owners, *keys.others):
        tensor = keys.tensors[key]
        left -= tensor.end - tensor.begin
        if left < 0:
            unread += 1
            continue
        values = tensor_values.look(handle, tensor)
        if not values.finite:
            not_finite.append(key)
        if values.zero and key in owners:
            zero.add(owners[key])
    return list(zero), not_finite, unread
