"""Triton's cache: for which card each kernel was made, and whether it can be loaded.

Sources: `triton/compiler/compiler.py` of Triton 2.3 to 3.9 (the metadata beside each kernel) and
`triton/runtime/cache.py` (the group, without which an entry is not looked at).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

from envcheck.core.artefacts import TRITON, Artefact
from envcheck.core.device_file import Code, Container
from envcheck.core.names import visible
from envcheck.core.sm import Sm
from envcheck.guest import cubin, elf
from envcheck.guest.elf import Malformed
from envcheck.guest.reading import open_regular

# What stands beside the metadata of one kernel.
STAGES = (".cubin", ".ptx", ".ttir", ".ttgir", ".llir", ".hsaco")
_U64, _U16S = struct.Struct("<Q"), struct.Struct("<HH")
MAX_JSON, _MAX_CUBIN = 1 << 20, 1 << 28


def belongs_to_triton(path: str) -> bool:
    """Say whether a file is a stage of a kernel in Triton's cache, whose metadata speaks for it."""
    stem, suffix = os.path.splitext(path)
    return suffix in STAGES and of_triton(f"{stem}.json") is not None


def of_triton(path: str) -> Artefact | None:
    """Read the metadata of one kernel in Triton's cache, None for anything else."""
    stem, suffix = os.path.splitext(path)
    grouped = os.path.isfile(_group(path))
    if suffix != ".json" or not (grouped or any(os.path.isfile(stem + stage) for stage in STAGES)):
        return None
    group = parsed(_read(_group(path))) if grouped else None
    binary = f"{stem}.cubin"
    return entry(
        visible(os.path.abspath(path)),
        parsed(_read(path)),
        group=group if grouped else ABSENT,
        binary=lambda: (_code_of(binary), _damage(binary)),
    )


ABSENT = object()
"""In the place of a group that is not there."""


def entry(
    path: str,
    data: Any,
    *,
    group: Any,
    binary: Callable[[], tuple[Code | None, str | None]],
) -> Artefact | None:
    """Return what a kernel's metadata says, None for JSON that is of no cache.

    `path` is that of the metadata, `binary` returns the cubin's code and why it cannot be loaded.
    """
    folder, _, name = path.rpartition("/")
    grouped = group is not ABSENT
    if grouped and not isinstance(data, dict):
        return damaged_entry(folder, f"{name} is not JSON as Triton writes it")
    if not isinstance(data, dict) or "num_warps" not in data:
        return None
    if grouped and not isinstance(group, dict):
        return damaged_entry(folder, f"__grp__{name} is not JSON")
    # The folder above that of the kernel is the cache.
    made = _made(data, folder.rpartition("/")[0], lambda: binary()[0])
    why = binary()[1] if grouped and data.get("target") and not made.others else None
    return damaged_entry(folder, why, made.parts) if why is not None else made


def damaged_entry(folder: str, why: str, parts: tuple[Container, ...] = ()) -> Artefact:
    """Return the entry that a damaged file is in, apart from the whole cache."""
    return Artefact(path=folder, kind=TRITON, parts=parts, damaged=why)


def _made(data: dict[str, Any], folder: str, binary: Callable[[], Code | None]) -> Artefact:
    """Return for what a kernel was made."""
    backend, arch = _target(data.get("target"))
    says = {"version": str(data["triton_version"])[:40]} if "triton_version" in data else {}
    if backend == "cuda" and isinstance(arch, int) and 10 <= arch <= 999:
        code = Code(kind="sass", sm=str(Sm(arch)))
    elif backend is not None:
        others = (f"{backend} {arch}"[:40],)
        return Artefact(path=folder, kind=TRITON, says=says, others=others)
    else:
        found = binary()  # Triton 2.0 says no target
        if found is None:
            return Artefact(path=folder, kind=TRITON, says=says)
        code = Code(kind="sass", sm=str(Sm.parse(found.sm).plain))
        says = {**says, "untold": "its metadata names no card"}
    part = Container(section="metadata", code=(code,))
    return Artefact(path=folder, kind=TRITON, says=says, parts=(part,))


def _group(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f"__grp__{name}")


def _damage(binary: str) -> str | None:
    """Return why the driver refuses a cubin that an entry is to have."""
    name = os.path.basename(binary)
    if not os.path.isfile(binary):
        return f"{name} is missing"
    data = _read(binary, _MAX_CUBIN)
    try:
        image = elf.read(data)
        for section in image.sections:
            image.content(section)
    except Malformed as error:
        return f"{name} is cut off or damaged: {error}"
    # The table of segments stands last in a cubin.
    (begin,), (size, count) = _U64.unpack_from(data, 32), _U16S.unpack_from(data, 54)
    if image.bits == 64 and begin + size * count > len(data):
        return f"{name} is cut off: its segments are past the end"
    return None if image.machine == elf.EM_CUDA else f"{name} is no cubin"


def _target(value: Any) -> tuple[str | None, Any]:
    """Return backend and arch; Triton 2.x wrote a list, 3.x an object."""
    if isinstance(value, dict):
        value = [value.get("backend"), value.get("arch")]
    if isinstance(value, list) and len(value) >= 2 and isinstance(value[0], str):
        return value[0], value[1]
    return None, None


def _code_of(path: str) -> Code | None:
    data = _read(path, _MAX_CUBIN)
    try:
        return cubin.code_of_cubin(data, elf.read(data)) if data else None
    except Malformed:
        return None


def _read(path: str, most: int = MAX_JSON) -> bytes:
    """Return the bytes of a regular file of at most that size, nothing otherwise."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > most:
            return b""
        with open_regular(path) as handle:
            return handle.read(most)
    except (OSError, ValueError):
        return b""


def parsed(raw: bytes) -> Any:
    """Return what JSON says, None for what is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
