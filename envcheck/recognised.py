"""What a file is that was made for one card or one model: told by its name and place, or its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from envcheck import unpack
from envcheck.core.artefacts import Adapter, Artefact
from envcheck.core.device_file import DeviceFile
from envcheck.guest import adapters, artefacts, triton_cache
from envcheck.inflate import inflate


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing that a source gave: a file that was read, or a file of no interest."""

    file: DeviceFile | None
    """None for a file of a format that cannot hold device code."""
    artefact: Artefact | None = None
    """What it was made for, where it is a cache, a package or an engine."""
    adapter: Adapter | None = None
    """What its keys say, where it is a LoRA adapter."""


def by_name(path: str, name: str) -> Seen | None:
    """Recognise what its name and place tell: an adapter, or a part of a cache."""
    suffix = Path(path).suffix
    if suffix == ".safetensors":
        adapter = adapters.read(path, name)
        return Seen(None, adapter=adapter) if adapter is not None else None
    if suffix == ".json":
        kernel = triton_cache.of_triton(path)
        return Seen(None, artefact=kernel) if kernel is not None else None
    if triton_cache.belongs_to_triton(path):
        return Seen(None)
    if artefacts.is_extension(path):
        return Seen(None, artefact=artefacts.of_extension(path, inflate))
    return None


def by_bytes(handle: IO[bytes], name: str) -> Artefact | None:
    """Recognise what the bytes tell: an engine, or an AOT package."""
    engine = artefacts.of_engine(handle, name)
    if engine is not None or not name.endswith((".pt2", ".zip")):
        return engine
    try:
        with unpack.open_zip(handle) as archive:
            return artefacts.of_package(archive, name, inflate)
    except unpack.UNREADABLE:
        return None  # reading it as an archive says what is wrong with it
    finally:
        handle.seek(0)
