"""One file in, one `DeviceFile` out: what device code it holds, whatever its format.

Payloads stay compressed except where names are needed: to tell a link stub from code, and
to name kernels where the containers of a file are not all for the same SMs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from envcheck.core.coverage import UNREAD, reach, usable_code
from envcheck.core.dispatching import dispatches
from envcheck.core.model import Code, Container, DeviceFile
from envcheck.core.sm import Sm
from envcheck.guest import archive, cubin, elf, fatbin
from envcheck.guest.elf import Buffer, Malformed
from envcheck.guest.fatbin import Entry
from envcheck.guest.kernel_name import function_name

Inflate = Callable[[bytes, str, int], bytes]
"""Decompress (payload, `lz4` or `zstd`, unpacked size); raises ValueError."""

_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_HIP_SECTIONS = (".hip_fatbin", ".hipFatBinSegment")
_FORMATS = {elf.ET_REL: "object", elf.ET_EXEC: "executable", elf.ET_DYN: "shared-object"}

# A cubin without a kernel is at most 2.6 kB, PTX without one 70 bytes (measured over
# torch 2.14.1 and its CUDA libraries); anything larger is not opened to find that out.
_SMALL = 8192
# Names are read where containers differ, up to this many unpacked bytes of one file
# (Transformer Engine 2.20: 322 MB, vLLM 0.33: 153 MB).
_MAX_NAMED = 1 << 30
_MAX_UNPACKED = 1 << 28
_HEAD = 1 << 16


def read(buffer: Buffer, *, path: str, inflate: Inflate) -> DeviceFile:
    """Read one file; what is malformed becomes the file's `problem`, not an exception."""
    facts = DeviceFile(path=path, format="other", size=len(buffer))
    packed: tuple[Container, ...] = ()
    problem = None
    try:
        facts = _identify(buffer, facts)
        found = list(_find(buffer, facts.format))
        packed = facts.containers or _group(
            buffer, found, inflate, form=facts.format, names=not dispatches(path)
        )
    except Malformed as error:
        problem = str(error)
    skipped = facts.skipped
    if not packed and not problem and not skipped:
        skipped = "no device code"
    elif not any(c.has_code for c in packed) and packed and not problem:
        skipped = "only a link stub without code"
    return DeviceFile(
        path=path,
        format=facts.format,
        size=facts.size,
        containers=packed,
        needed=facts.needed,
        skipped=skipped,
        problem=problem,
    )


def _identify(buffer: Buffer, facts: DeviceFile) -> DeviceFile:
    """Tell the format by content; fills in what only the whole file tells."""
    head = bytes(buffer[:_HEAD])
    if not head:
        return _with(facts, skipped="empty file")
    if head.startswith(elf.MAGIC):
        return _identify_elf(buffer, facts)
    if head.startswith(archive.AR_MAGIC):
        return _with(facts, format="archive")
    if head.startswith(archive.THIN_MAGIC):
        return _with(facts, format="archive", skipped="thin archive: its members are elsewhere")
    if head.startswith(fatbin.MAGIC):
        return _with(facts, format="fatbin")
    if is_ptx(head):
        text = bytes(buffer[:]) if len(buffer) <= _MAX_UNPACKED else head
        code = cubin.code_of_ptx(text.decode("utf-8", "replace").lstrip("\ufeff"))
        one = Container(section="file", code=(code,), has_code=cubin.ptx_has_code(text))
        return _with(facts, format="ptx", containers=(one,))
    return _with(facts, skipped="not a format that holds device code")


def _identify_elf(buffer: Buffer, facts: DeviceFile) -> DeviceFile:
    image = elf.read(buffer)
    if image.machine == elf.EM_CUDA:
        code = cubin.code_of_cubin(buffer, image)
        one = Container(section="file", code=(code,), has_code=cubin.has_code(image))
        return _with(facts, format="cubin", containers=(one,))
    name = _FORMATS.get(image.kind, "other")
    hip = any(image.find(s) for s in _HIP_SECTIONS)
    nvidia = any(image.find(s) for s in _SECTIONS)
    skipped = "HIP code for AMD cards, none for NVIDIA" if hip and not nvidia else None
    return _with(facts, format=name, needed=elf.needed(buffer, image), skipped=skipped)


def _with(facts: DeviceFile, **changes: object) -> DeviceFile:
    fields = {name: getattr(facts, name) for name in DeviceFile.__dataclass_fields__}
    return DeviceFile(**{**fields, **changes})


def is_ptx(head: bytes) -> bool:
    """Say whether a file that starts with `head` reads like PTX text."""
    return b"\0" not in head and b".version" in head and b".target" in head


def _find(buffer: Buffer, form: str) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """Yield (section, entries) for each container of the file; raises Malformed."""
    if form == "fatbin":
        # A driver reads the first container of an image and nothing after it.
        for number, entries in enumerate(fatbin.containers(buffer, 0, len(buffer))):
            yield (UNREAD if number else "file"), entries
    elif form == "archive":
        for start, size in archive.members(buffer):
            if buffer[start : start + 4] == elf.MAGIC and size >= 64:
                yield from _find_in_elf(buffer, start, size)
    elif form in ("shared-object", "executable", "object"):
        yield from _find_in_elf(buffer, 0, len(buffer))


def _find_in_elf(buffer: Buffer, start: int, size: int) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    image = elf.read(buffer, start, size)
    places = [(s.name, *image.content(s)) for s in image.sections if s.name in _SECTIONS]
    if not image.sections:
        # Without section headers (sstrip) the containers are still there: find their magic.
        at = buffer.find(fatbin.MAGIC, start, start + size)
        places = [(".nv_fatbin", at, _end_of_run(buffer, at, start + size))] if at >= 0 else []
    for name, begin, end in places:
        for entries in fatbin.containers(buffer, begin, end):
            yield name, entries


def _end_of_run(buffer: Buffer, at: int, end: int) -> int:
    """Return where the containers that stand back to back from `at` end."""
    while at + 16 <= end and buffer[at : at + 4] == fatbin.MAGIC:
        at += 16 + int.from_bytes(buffer[at + 8 : at + 16], "little")
    return min(at, end)


def _group(
    buffer: Buffer,
    found: list[tuple[str, tuple[Entry, ...]]],
    inflate: Inflate,
    *,
    form: str,
    names: bool,
) -> tuple[Container, ...]:
    """Take containers with the same entries together, in order of first appearance."""
    shapes: dict[tuple[str, tuple[Code, ...]], list[Entry | None]] = {}
    for section, entries in found:
        code = tuple(sorted({e.code for e in entries}, key=_code_key))
        shapes.setdefault((section, code), []).append(_spokesman(entries))
    spokesmen = [e for entries in shapes.values() for e in entries if e is not None]
    reached = {reach(usable_code(form, section, code)) for section, code in shapes}
    differ = len(reached - {frozenset()}) > 1
    named = names and differ and sum(e.unpacked for e in spokesmen) <= _MAX_NAMED
    return tuple(
        _container(buffer, section, code, entries, inflate, named=named)
        for (section, code), entries in shapes.items()
    )


def _spokesman(entries: Iterable[Entry]) -> Entry | None:
    """Choose the entry to read names from: those of a container come from one source file."""
    sass = [e for e in entries if e.code.kind == "sass"]
    ptx = [e for e in entries if e.code.kind == "ptx"]
    return min(sass or ptx, key=lambda e: e.unpacked, default=None)


def _container(
    buffer: Buffer,
    section: str,
    code: tuple[Code, ...],
    entries: list[Entry | None],
    inflate: Inflate,
    *,
    named: bool,
) -> Container:
    known = [e for e in entries if e is not None]
    names: set[str] = set()
    if named:
        images = [_unpack(buffer, entry, inflate) for entry in known]
        has = any(_has_code(image, entry.code) for image, entry in zip(images, known, strict=True))
        for image, entry in zip(images, known, strict=True):
            names.update(map(function_name, _kernels(image, entry.code)))
    else:
        # Generators: the first entry with code ends the search.
        has = any(e.unpacked > _SMALL for e in known) or any(
            _has_code(_unpack(buffer, e, inflate), e.code) for e in known
        )
    return Container(
        section=section,
        code=code,
        count=len(entries),
        has_code=has,
        kernels=tuple(sorted(names)) if named else None,
    )


@lru_cache(maxsize=4096)
def _code_key(code: Code) -> tuple[str, Sm, str]:
    return code.kind, Sm.parse(code.sm), code.isa or ""


def _unpack(buffer: Buffer, entry: Entry, inflate: Inflate) -> bytes:
    """Return the payload of an entry, decompressed; raises Malformed."""
    if entry.unpacked > _MAX_UNPACKED:
        message = f"fatbin payload at {entry.offset}: {entry.unpacked} bytes unpacked"
        raise Malformed(message)
    payload = bytes(buffer[entry.offset : entry.offset + entry.stored])
    if not entry.compression:
        return payload
    try:
        return inflate(payload, entry.compression, entry.unpacked)
    except ValueError as error:
        message = f"fatbin payload at {entry.offset}: {error}"
        raise Malformed(message) from None


def _has_code(image: bytes, code: Code) -> bool:
    return cubin.has_code(elf.read(image)) if code.kind == "sass" else cubin.ptx_has_code(image)


def _kernels(image: bytes, code: Code) -> tuple[str, ...]:
    """Return the mangled names of an entry's kernels; raises Malformed."""
    if code.kind == "sass":
        return cubin.cubin_kernels(image, elf.read(image))
    return cubin.ptx_kernels(image)
