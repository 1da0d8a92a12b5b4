"""Caches, packages and engines: for which card they were made, by their bytes and metadata.

Sources: `triton/compiler/compiler.py` of Triton 2.3 to 3.9 (the metadata beside each kernel),
`torch/_inductor/codecache.py` and `torch/export/pt2_archive` of PyTorch 2.14.1 (AOT packages),
netron's `tensorrt.js` and NVIDIA/TensorRT issue 3073 (magic and version of an engine).
"""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any

from envcheck.core.artefacts import AOT, ENGINE, EXTENSION, TRITON, Artefact, grouped
from envcheck.core.device_file import Code, Container
from envcheck.core.sm import Sm
from envcheck.guest import cache_folders, cubin, device_code, elf
from envcheck.guest.device_code import Inflate
from envcheck.guest.elf import Buffer, Malformed
from envcheck.guest.reading import open_regular, read_code

# What stands beside the metadata of one kernel in Triton's cache.
_STAGES = (".cubin", ".ptx", ".ttir", ".ttgir", ".llir", ".hsaco")
_EXTENSIONS = re.compile(r"(?:^|/)torch_extensions/py\d{2,4}[a-z]*_(?:cu\d+|cpu|rocm\d+)/.+\.so$")
_PACKAGE = re.compile(r"(?:^|/)data/aotinductor/")
_ENGINES = (b"ptrt", b"ftrt")
_EMBEDDED = b"\x7fELF\x02\x01\x01"
_MAX_JSON, _MAX_MEMBER = 1 << 20, 1 << 28
# Others are unpacked without a bound on memory.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_ENTRIES, _MAX_EMBEDDED, _MAX_MEMBERS = 1 << 13, 1 << 16, 1 << 14


def belongs_to_triton(path: str) -> bool:
    """Say whether a file is a stage of a kernel in Triton's cache, whose metadata speaks for it."""
    stem, suffix = os.path.splitext(path)
    return suffix in _STAGES and of_triton(f"{stem}.json") is not None


def of_triton(path: str) -> Artefact | None:
    """Read the metadata of one kernel in Triton's cache, None for anything else."""
    stem, suffix = os.path.splitext(path)
    if suffix != ".json" or not any(os.path.isfile(stem + stage) for stage in _STAGES):
        return None
    data = _json(_read(path))
    if not isinstance(data, dict) or "num_warps" not in data:
        return None
    backend, arch = _target(data.get("target"))
    says = {"version": str(data["triton_version"])[:40]} if "triton_version" in data else {}
    # The folder above that of the kernel is the cache.
    folder = _visible(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    if backend == "cuda" and isinstance(arch, int) and 10 <= arch <= 999:
        code = Code(kind="sass", sm=str(Sm(arch)))
    elif backend is not None:
        others = (f"{backend} {arch}"[:40],)
        return Artefact(path=folder, kind=TRITON, says=says, others=others)
    else:
        found = _code_of(f"{stem}.cubin")  # Triton 2.0 says no target
        if found is None:
            return Artefact(path=folder, kind=TRITON, says=says)
        code = Code(kind="sass", sm=str(Sm.parse(found.sm).plain))
        says = {**says, "untold": "its metadata names no card"}
    part = Container(section="metadata", code=(code,))
    return Artefact(path=folder, kind=TRITON, says=says, parts=(part,))


def _target(value: Any) -> tuple[str | None, Any]:
    """Return backend and arch; Triton 2.x wrote a list, 3.x an object."""
    if isinstance(value, dict):
        value = [value.get("backend"), value.get("arch")]
    if isinstance(value, list) and len(value) >= 2 and isinstance(value[0], str):
        return value[0], value[1]
    return None, None


def is_extension(path: str) -> bool:
    """Say whether a path lies where torch.utils.cpp_extension builds."""
    return _EXTENSIONS.search(path.replace(os.sep, "/")) is not None


def of_extension(path: str, inflate: Inflate) -> Artefact:
    """Read the device code of a library that torch.utils.cpp_extension built."""
    name = _visible(path)
    try:
        with open_regular(path) as handle:
            file = read_code(handle, name, inflate)
    except (OSError, ValueError) as error:
        return Artefact(path=name, kind=EXTENSION, problem=_reason(error))
    parts = tuple(part for part in file.containers if part.has_code)
    return Artefact(path=name, kind=EXTENSION, parts=parts, problem=file.problem)


def of_engine(handle: IO[bytes], name: str) -> Artefact | None:
    """Read a TensorRT engine, None for anything else.

    Magic and version are all of its header that is known. Of the card nothing is, but for the
    machine code that an engine may carry.
    """
    head = handle.read(32)
    handle.seek(0)
    if not head.startswith(_ENGINES) or len(head) < 32:
        return None
    major, minor, patch = struct.unpack_from("<3B", head, 24)
    # TensorRT 8.6 was the first to write its version there.
    says = {"version": f"{major}.{minor}.{patch}"} if 8 <= major <= 20 else {}
    try:
        with mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as view:
            parts = _together(embedded(view))
    except (OSError, ValueError) as error:
        return Artefact(path=name, kind=ENGINE, says=says, problem=_reason(error))
    return Artefact(path=name, kind=ENGINE, says=says, parts=parts)


def embedded(buffer: Buffer) -> Iterator[Code]:
    """Yield the cubins that lie anywhere in a file, uncompressed."""
    at = buffer.find(_EMBEDDED)
    for _ in range(_MAX_EMBEDDED):
        if at < 0:
            return
        if buffer[at + 18 : at + 20] == elf.EM_CUDA.to_bytes(2, "little"):
            try:
                code = cubin.code_of_cubin(buffer, elf.read(buffer, at))
            except Malformed:
                code = None
            if code is not None:
                yield code
        at = buffer.find(_EMBEDDED, at + 1)


def of_package(archive: zipfile.ZipFile, name: str, inflate: Inflate) -> Artefact | None:
    """Read an AOT package of PyTorch, None for any other zip."""
    infos = [i for i in archive.infolist()[:_MAX_MEMBERS] if _PACKAGE.search(i.filename)]
    if not infos:
        return None
    says: dict[str, str] = {}
    parts: dict[tuple[str, tuple[Code, ...]], Container] = {}
    problem = None
    for info in infos:
        if info.file_size > _MAX_MEMBER or info.compress_type not in _METHODS:
            says["unread"] = _visible(info.filename)[-200:]
            continue
        if info.filename.endswith("_metadata.json"):
            says |= _device(_json(archive.read(info)))
        elif info.filename.endswith((".so", ".cubin", ".fatbin")):
            buffer = archive.read(info)
            file = device_code.read(buffer, path=info.filename, inflate=inflate)
            # Kernels may lie in the library as plain bytes, in a section of data.
            within = embedded(buffer) if info.filename.endswith(".so") else iter(())
            found = [p for p in file.containers if p.has_code]
            parts |= {(p.section, p.code): p for p in [*found, *_together(within)]}
            problem = problem or file.problem
    return Artefact(path=name, kind=AOT, says=says, parts=tuple(parts.values()), problem=problem)


def _device(data: Any) -> dict[str, str]:
    """Return what the metadata of a package says about the device that it was made on."""
    if not isinstance(data, dict):
        return {}
    names = {"device": "AOTI_DEVICE_KEY", "capability": "AOTI_COMPUTE_CAPABILITY"}
    return {name: str(data[key])[:40] for name, key in names.items() if data.get(key)}


def _together(codes: Iterator[Code]) -> tuple[Container, ...]:
    counts: dict[Code, int] = {}
    for code in codes:
        counts[code] = counts.get(code, 0) + 1
    return tuple(Container(section="embedded", code=(c,), count=n) for c, n in counts.items())


def of_job(*, cuda: str | None) -> tuple[Artefact, ...]:
    """Read the caches that a job of this user would find; `cuda` is the release of its PyTorch."""
    from envcheck.guest.inflate import inflate  # half of what there is to import

    folders = {role: path for role, _, path in cache_folders.paths(cuda=cuda)}
    triton = [folders["triton"], os.path.join(folders["inductor"], "triton")]
    return of_folders(triton, folders["extensions"], inflate)


def of_folders(triton: list[str], extensions: str | None, inflate: Inflate) -> tuple[Artefact, ...]:
    """Read the caches that a job would find."""
    found = [a for folder in triton for path in _files(folder, ".json") if (a := of_triton(path))]
    if extensions is not None:
        found += [of_extension(path, inflate) for path in _files(extensions, ".so")]
    return grouped(found)


def _files(folder: str, suffix: str) -> Iterator[str]:
    count = 0
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(suffix) and not name.startswith("__grp__"):
                count += 1
                if count > _MAX_ENTRIES:
                    return
                yield os.path.join(where, name)


def _code_of(path: str) -> Code | None:
    data = _read(path, _MAX_MEMBER)
    try:
        return cubin.code_of_cubin(data, elf.read(data)) if data else None
    except Malformed:
        return None


def _read(path: str, most: int = _MAX_JSON) -> bytes:
    """Return the bytes of a regular file of at most that size, nothing otherwise."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > most:
            return b""
        with open_regular(path) as handle:
            return handle.read(most)
    except (OSError, ValueError):
        return b""


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _visible(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
