"""One file in, one `DeviceFile` out: what device code it holds, whatever its format.

Payloads stay compressed except where names are needed: to tell a link stub from code, and
to name kernels where the containers of a file are not all for the same SMs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from envcheck.core.coverage import reach, usable_code
from envcheck.core.device_file import Code, Container, DeviceFile
from envcheck.core.dispatching import dispatches
from envcheck.core.sm import Sm
from envcheck.guest import archive, containers, cubin, elf, fatbin
from envcheck.guest.containers import Found
from envcheck.guest.elf import Buffer, Malformed
from envcheck.guest.fatbin import Entry
from envcheck.guest.kernel_name import function_name

Inflate = Callable[[bytes, str, int], bytes]
"""Decompress (payload, `lz4` or `zstd`, unpacked size); raises ValueError."""

_HIP_SECTIONS = (".hip_fatbin", ".hipFatBinSegment")
_FORMATS = {elf.ET_REL: "object", elf.ET_EXEC: "executable", elf.ET_DYN: "shared-object"}

# A cubin without a kernel is at most 2.6 kB, PTX without one 70 bytes (measured over
# torch 2.14.1 and its CUDA libraries); anything larger is not opened to find that out.
_SMALL = 8192
# Names are read where containers differ, up to this many unpacked bytes of one file
# (Transformer Engine 2.20: 322 MB, vLLM 0.33: 153 MB).
_MAX_NAMED = 1 << 30
_MAX_UNPACKED = 1 << 28
_HEAD, _MAX_PTX = 1 << 16, 1 << 24


def read(buffer: Buffer, *, path: str, inflate: Inflate) -> DeviceFile:
    """Read one file; what is malformed becomes the file's `problem`, not an exception."""
    facts = DeviceFile(path=path, format="other", size=len(buffer))
    packed: tuple[Container, ...] = ()
    problem = toolkit = None
    try:
        facts = _identify(buffer, facts)
        if facts.skipped is None:
            found = list(containers.find(buffer, facts.format))
            packed = facts.containers or _group(
                buffer, found, inflate, form=facts.format, names=not dispatches(path)
            )
            if not any(name.startswith("libcudart.") for name in facts.needed):
                toolkit = _toolkit(buffer, found, inflate)
    except Malformed as error:
        problem = str(error)
    skipped = facts.skipped
    if not packed and not problem and not skipped:
        skipped = "no device code"
    elif not any(c.has_code for c in packed) and packed and not problem:
        stub = any(c.code for c in packed)
        skipped = "only a link stub without code" if stub else "only containers without entries"
    return DeviceFile(
        path=path,
        format=facts.format,
        size=facts.size,
        containers=packed,
        needed=facts.needed,
        toolkit=toolkit,
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
    # By name too: a text called .ptx that lacks what PTX begins with is broken, not of no interest.
    if is_ptx(head) or (facts.path.endswith(".ptx") and b"\0" not in head):
        text = bytes(buffer[:_MAX_PTX])
        code = cubin.code_of_ptx(text)
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
    nvidia = any(image.find(s) for s in containers.SECTIONS)
    skipped = "HIP code for AMD cards, none for NVIDIA" if hip and not nvidia else None
    return _with(facts, format=name, needed=elf.needed(buffer, image), skipped=skipped)


def _with(facts: DeviceFile, **changes: object) -> DeviceFile:
    fields = {name: getattr(facts, name) for name in DeviceFile.__dataclass_fields__}
    return DeviceFile(**{**fields, **changes})


def is_ptx(head: bytes) -> bool:
    """Say whether a file that starts with `head` reads like PTX text."""
    return b"\0" not in head and b".version" in head and b".target" in head


def _group(
    buffer: Buffer, found: list[Found], inflate: Inflate, *, form: str, names: bool
) -> tuple[Container, ...]:
    """Take containers with the same entries together, in order of first appearance."""
    shapes: dict[tuple[str, tuple[Code, ...]], list[tuple[Entry, ...]]] = {}
    for section, entries in found:
        # Sorting keeps equals in place: of two PTX texts for one SM a driver takes the first.
        code = tuple(sorted(dict.fromkeys(e.code for e in entries), key=_code_key))
        shapes.setdefault((section, code), []).append(_readable(entries))
    has = {
        (section, code): any(c.kind not in ("sass", "ptx") for c in code)
        or _any_code(buffer, groups, inflate)
        for (section, code), groups in shapes.items()
    }
    reached = {reach(usable_code(form, *shape)) for shape in shapes if has[shape]}
    size = sum(group[0].unpacked for groups in shapes.values() for group in groups if group)
    named = names and len(reached - {frozenset()}) > 1 and size <= _MAX_NAMED
    return tuple(
        Container(
            section=section,
            code=code,
            count=len(groups),
            has_code=has[section, code],
            kernels=_names(buffer, groups, inflate) if named else None,
        )
        for (section, code), groups in shapes.items()
    )


@lru_cache(maxsize=4096)
def _code_key(code: Code) -> tuple[str, Sm]:
    return code.kind, Sm.parse(code.sm)


def _readable(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries to read names from, in that order.

    All entries of a container come from one source file; the smallest cubin is read fastest.
    """
    usable = [e for e in entries if e.code.kind in ("sass", "ptx")]
    return tuple(sorted(usable, key=lambda e: (e.code.kind != "sass", e.unpacked)))


def _any_code(buffer: Buffer, groups: list[tuple[Entry, ...]], inflate: Inflate) -> bool:
    """Say whether any entry holds a function; generators, so that the first one ends the search."""
    entries = [e for group in groups for e in group]
    return any(e.unpacked > _SMALL for e in entries) or any(
        _has_code(unpack(buffer, e, inflate), e.code.kind) for e in entries
    )


def _names(buffer: Buffer, groups: list[tuple[Entry, ...]], inflate: Inflate) -> tuple[str, ...]:
    """Return the kernels of containers, each read from its first entry that has code."""
    names: set[str] = set()
    for group in groups:
        # Entries without code are rare (a kernel that exists for some SMs only): go on.
        images = ((unpack(buffer, e, inflate), e.code.kind) for e in group)
        image = next((i for i in images if _has_code(*i)), None)
        names.update(map(function_name, _kernels(*image) if image is not None else ()))
    return tuple(sorted(names))


def _toolkit(buffer: Buffer, found: list[Found], inflate: Inflate) -> str | None:
    """Return the CUDA release of the smallest cubin: what a runtime that is linked in is of."""
    cubins = [e for _, entries in found for e in entries if e.code.kind == "sass"]
    smallest = min(cubins, key=lambda e: e.unpacked, default=None)
    if smallest is None or smallest.unpacked > _MAX_UNPACKED:
        return None
    image = unpack(buffer, smallest, inflate)
    return cubin.toolkit(image, elf.read(image))


def unpack(buffer: Buffer, entry: Entry, inflate: Inflate) -> bytes:
    """Return the payload of an entry, decompressed; raises Malformed."""
    where = f"fatbin payload at {entry.offset}"
    if entry.unpacked > _MAX_UNPACKED or entry.compression == "keyed":
        message = f"{where}: {entry.unpacked} bytes unpacked, {entry.compression or 'plain'}"
        raise Malformed(message)
    payload = bytes(buffer[entry.offset : entry.offset + entry.stored])
    if entry.compression:
        try:
            payload = inflate(payload, entry.compression, entry.unpacked)
        except ValueError as error:
            message = f"{where}: {error}"
            raise Malformed(message) from None
    if entry.code.kind == "sass":
        cubin.check_cubin(payload, 0, len(payload), entry.code)
    else:
        cubin.check_ptx(payload, entry.offset, entry.code)
    return payload


def _has_code(image: bytes, kind: str) -> bool:
    return cubin.has_code(elf.read(image)) if kind == "sass" else cubin.ptx_has_code(image)


def _kernels(image: bytes, kind: str) -> tuple[str, ...]:
    """Return the mangled names of an entry's kernels; raises Malformed."""
    if kind == "sass":
        return cubin.cubin_kernels(image, elf.read(image))
    return cubin.ptx_kernels(image)
