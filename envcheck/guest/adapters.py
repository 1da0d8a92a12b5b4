"""LoRA adapters in safetensors files: what their keys say, read from the header alone.

The format: eight bytes of length, that many bytes of JSON, then the tensors (safetensors' own
description). Of the tensors only those called `lora_B` are read, up to the first byte that is
not zero, since training starts with zeros there: an adapter that still has them changes nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any

from envcheck.core.artefacts import Adapter, Marked
from envcheck.guest.reading import open_regular

# Marks: keys that PEFT does not look for, in the order in which they are told.
WRAPPED, DOUBLED, NAMED, BARE = "wrapped", "doubled-prefix", "adapter-name", "no-prefix"
SINGLE, RANKED = "no-partner", "other-rank"

_PREFIX = "base_model.model."
# What torch.compile, DDP, FSDP and activation checkpointing put between the names of modules.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_LORA = re.compile(r"^(?P<module>.+)\.lora_(?P<side>[AB])(?P<named>(?:\.[^.]+)*?)\.weight$")
_MAX_HEADER = 100_000_000  # safetensors' own limit
_MAX_READ = 1 << 30
_PIECE = 1 << 20
_MAX_CONFIG = 1 << 20
# The bytes of 0.0 and of -0.0, whose sign alone is set; what else they make is hardly above zero.
_ZEROS = b"\x00\x80"
_MAX_KEY, _MAX_NAMES = 1024, 64


def read(path: str, name: str) -> Adapter | None:
    """Read one safetensors file, None for one without LoRA weights."""
    try:
        with open_regular(path) as handle:
            size = os.fstat(handle.fileno()).st_size
            header, start = _header(handle, size)
            keys = {k: m for k in header if len(k) <= _MAX_KEY and (m := _LORA.match(k))}
            if not keys:
                return None
            return _adapter(path, name, header, keys, _zero(handle, header, keys, start))
    except _Broken as error:
        # Whether a file without a header that can be read is an adapter, its name must tell.
        called = os.path.basename(path).startswith("adapter_model")
        return Adapter(path=name, problem=str(error)) if called else None
    except (OSError, ValueError):
        return None


class _Broken(Exception):
    """The header contradicts the format or the file."""


def _header(handle: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(handle.read(8), "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER):
        message = f"safetensors header of {length} bytes in a file of {size}"
        raise _Broken(message)
    try:
        data = json.loads(_exactly(handle, length))
    except (ValueError, RecursionError):
        message = "safetensors header: not JSON"
        raise _Broken(message) from None
    if not isinstance(data, dict):
        message = "safetensors header: not an object"
        raise _Broken(message)
    data.pop("__metadata__", None)
    start = 8 + length
    for key, value in data.items():
        begin, end = _offsets(value)
        if not 0 <= begin <= end <= size - start:
            message = f"tensor {key[:100]!r} ends past the end of the file: it was cut off"
            raise _Broken(message)
    return data, start


def _offsets(value: Any) -> tuple[int, int]:
    found = value.get("data_offsets") if isinstance(value, dict) else None
    if isinstance(found, list) and len(found) == 2 and all(type(n) is int for n in found):
        return found[0], found[1]
    return 0, -1


def _exactly(handle: IO[bytes], length: int) -> bytes:
    """Read that many bytes: an unbuffered file may return fewer at a time."""
    pieces = []
    while length > 0 and (piece := handle.read(min(length, _PIECE))):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _zero(
    handle: IO[bytes], header: Mapping[str, Any], keys: Mapping[str, re.Match[str]], start: int
) -> tuple[int, int]:
    """Return how many `lora_B` are all zero, and how many were not read."""
    zero = unread = 0
    left = _MAX_READ
    for key, match in keys.items():
        if match["side"] != "B":
            continue
        begin, end = _offsets(header[key])
        if left <= 0:
            unread += 1
            continue
        handle.seek(start + begin)
        rest = end - begin
        while rest > 0 and (piece := handle.read(min(rest, _PIECE))):
            rest -= len(piece)
            left -= len(piece)
            if piece.translate(None, _ZEROS):
                break
        else:
            zero += rest == 0
    return zero, unread


def _adapter(
    path: str,
    name: str,
    header: Mapping[str, Any],
    keys: Mapping[str, re.Match[str]],
    zeros: tuple[int, int],
) -> Adapter:
    config = _config(os.path.join(os.path.dirname(path), "adapter_config.json"))
    sides: dict[str, set[str]] = {}
    for match in keys.values():
        sides.setdefault(match["module"] + match["named"], set()).add(match["side"])
    rank = config.get("r") if config is not None else None
    single = (
        rank if type(rank) is int and rank > 0 and not (config or {}).get("rank_pattern") else None
    )
    modules = [m["module"] for m in keys.values() if m["side"] == "B"]
    base, unmatched = _against_base(path, config, modules)
    return Adapter(
        path=name,
        pairs=sum(found == {"A", "B"} for found in sides.values()),
        configured=config is not None,
        rank=single,
        marks=tuple(_marks(header, keys, sides, single)),
        zero=zeros[0],
        unread=zeros[1],
        base=base,
        unmatched=unmatched,
    )


def _marks(
    header: Mapping[str, Any],
    keys: Mapping[str, re.Match[str]],
    sides: Mapping[str, set[str]],
    rank: int | None,
) -> Iterator[Marked]:
    """Yield what the keys have in common that should not be there."""
    groups: dict[str, list[str]] = {
        WRAPPED: [k for k in keys if set(_WRAPPERS) & set(k.split("."))],
        DOUBLED: [k for k in keys if k.startswith(_PREFIX + _PREFIX)],
        # PEFT itself takes `default`, the name that it gives where none is given.
        NAMED: [k for k, m in keys.items() if m["named"] not in ("", ".default")],
        BARE: [k for k in keys if not k.startswith("base_model.")],
        SINGLE: [module for module, found in sides.items() if len(found) == 1],
    }
    if rank is not None:
        groups[RANKED] = [
            k for k, m in keys.items() if m["side"] == "A" and not _has_rank(header[k], rank)
        ]
    for mark, found in groups.items():
        if found:
            yield Marked(mark=mark, count=len(found), example=found[0][:300])


def _has_rank(entry: Any, rank: int) -> bool:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or not shape or type(shape[0]) is not int:
        return True
    return shape[0] % rank == 0


def _config(path: str) -> dict[str, Any] | None:
    try:
        if not os.path.isfile(path):
            return None
        with open_regular(path) as handle:
            data = json.loads(_exactly(handle, _MAX_CONFIG))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _against_base(
    path: str, config: dict[str, Any] | None, modules: list[str]
) -> tuple[str | None, Marked | None]:
    """Compare the adapter's modules with the base model that its configuration names."""
    named = (config or {}).get("base_model_name_or_path")
    if not isinstance(named, str) or not named:
        return None, None
    # A relative name is one of the folder that the job starts in, or of the adapter's.
    for folder in (named, os.path.join(os.path.dirname(path), named)):
        weights = _base_keys(folder)
        if weights:
            break
    else:
        return None, None
    known = {key.rpartition(".")[0] for key in weights}
    # Checkpoints and models differ in the first names: `h.0.attn` and `transformer.h.0.attn`.
    ends = {end for module in known for end in _ends(module)}
    missing = [m for m in modules if not _known(m.removeprefix(_PREFIX), known, ends)]
    # Libraries rename modules when they load a checkpoint (transformers 5 joins experts), so a name
    # that is new tells nothing, unless it differs from a known one by the number of its layer.
    if len(missing) < len(modules) or any("experts" in m.split(".") for m in missing):
        shapes = {_unnumbered(end) for end in ends}
        missing = [m for m in missing if _unnumbered(m.removeprefix(_PREFIX)) in shapes]
    mark = Marked(mark="not-in-base", count=len(missing), example=missing[0]) if missing else None
    return folder, mark


def _unnumbered(module: str) -> str:
    return ".".join("#" if name.isdecimal() else name for name in module.split("."))


def _ends(module: str) -> Iterator[str]:
    names = module.split(".")
    return (".".join(names[i:]) for i in range(min(len(names), _MAX_NAMES)))


def _known(module: str, known: set[str], ends: set[str]) -> bool:
    return module in ends or any(end in known for end in _ends(module))


def _base_keys(folder: str) -> set[str]:
    """Return the keys of a model's weights, from its index or its one file."""
    index = _config_of_index(os.path.join(folder, "model.safetensors.index.json"))
    if index:
        return index
    try:
        with open_regular(os.path.join(folder, "model.safetensors")) as handle:
            return set(_header(handle, os.fstat(handle.fileno()).st_size)[0])
    except (OSError, ValueError, _Broken):
        return set()


def _config_of_index(path: str) -> set[str]:
    try:
        if not os.path.isfile(path):
            return set()
        with open_regular(path) as handle:
            data = json.loads(_exactly(handle, _MAX_HEADER))
        return set(data["weight_map"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()
