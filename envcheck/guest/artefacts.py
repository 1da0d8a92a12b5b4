"""Caches, packages and engines: for which card they were made, by their bytes and metadata.

Sources: `torch/_inductor/codecache.py` and `torch/export/pt2_archive` of PyTorch 2.14.1 (AOT packages),
netron's `tensorrt.js` and NVIDIA/TensorRT issue 3073 (magic and version of an engine).
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any

from envcheck.core.artefacts import AOT, ENGINE, EXTENSION, Artefact, grouped
from envcheck.core.device_file import Code, Container, DeviceFile
from envcheck.core.names import visible
from envcheck.guest import cache_folders, cubin, device_code, elf
from envcheck.guest.device_code import Inflate
from envcheck.guest.elf import Buffer, Malformed
from envcheck.guest.linked_files import refusal
from envcheck.guest.reading import open_regular, read_code
from envcheck.guest.triton_cache import damaged_entry, of_triton, parsed

# By default below a folder for Python and CUDA; in TORCH_EXTENSIONS_DIR each name lies at once.
_EXTENSIONS = re.compile(
    r"(?:^|/)torch_extensions/(?:py\d{2,4}[a-z]*_(?:cu\d+|cpu|rocm\d+)/.+"
    r"|(?P<name>[^/]+)/(?P=name)(?:_v\d+)?)\.so$"
)
_PACKAGE = re.compile(r"(?:^|/)data/aotinductor/")
ENGINES = (b"ptrt", b"ftrt")
_EMBEDDED = b"\x7fELF\x02\x01\x01"
_MAX_MEMBER = 1 << 28
# Others are unpacked without a bound on memory.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_ENTRIES, _MAX_EMBEDDED, _MAX_MEMBERS = 1 << 13, 1 << 16, 1 << 14


def is_extension(path: str) -> bool:
    """Say whether a path lies where torch.utils.cpp_extension builds."""
    return _EXTENSIONS.search(path.replace(os.sep, "/")) is not None


def of_extension(path: str, inflate: Inflate) -> Artefact:
    """Read the device code of a library that torch.utils.cpp_extension built."""
    name = visible(path)
    try:
        with open_regular(path) as handle:
            file = read_code(handle, name, inflate)
    except (OSError, ValueError) as error:
        return Artefact(path=name, kind=EXTENSION, problem=_reason(error))
    return built_extension(file, refusal(path))


def built_extension(file: DeviceFile, refused: str | None) -> Artefact:
    """Return what a library is that was built for this machine; `refused` says why it is no use."""
    return Artefact(
        path=file.path,
        kind=EXTENSION,
        parts=tuple(part for part in file.containers if part.has_code),
        problem=file.problem,
        damaged=refused,
    )


def of_engine(handle: IO[bytes], name: str) -> Artefact | None:
    """Read a TensorRT engine, None for anything else.

    Magic and version are all of its header that is known. Of the card nothing is, but for the
    machine code that an engine may carry.
    """
    head = handle.read(32)
    handle.seek(0)
    if not head.startswith(ENGINES) or len(head) < 32:
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
            says["unread"] = visible(info.filename)[-200:]
            continue
        if info.filename.endswith("_metadata.json"):
            says |= _device(parsed(archive.read(info)))
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
    # Launchers, and what asks the driver: libraries for no card.
    built = ((path, refusal(path)) for folder in triton for path in _files(folder, ".so"))
    found += [
        damaged_entry(visible(os.path.dirname(os.path.abspath(path))), why)
        for path, why in built
        if why is not None
    ]
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


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
