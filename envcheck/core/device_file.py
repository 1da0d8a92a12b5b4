"""Device code that was found in files: facts, free of I/O; field names are those in documents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One entry of a fatbin container, a bare cubin or a PTX text."""

    kind: str
    """`sass`, `ptx`, `lto-ir`, or `kind-0x..` for what has no name."""
    sm: str
    """`sm_90a`, from the entry's header or the cubin's own notes."""
    isa: str | None = None
    """PTX ISA version such as `8.4`; None for anything but PTX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """All containers of one file that hold the same entries, taken together."""

    section: str
    """`.nv_fatbin`, `__nv_relfatbin`, or `file` where the file itself is device code."""
    code: tuple[Code, ...]
    count: int = 1
    """How many containers of the file look like this one."""
    has_code: bool = True
    """False for link stubs and pure data, on which no verdict may rest."""
    kernels: tuple[str, ...] | None = None
    """Functions that are kernels, without template arguments; None where they were not read
    (all containers alike, or too many)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFile:
    """One file that was opened, and the device code found in it."""

    path: str
    """As the user gave it, `archive!/member`, or relative to its site directory."""
    format: str
    """`shared-object`, `executable`, `object`, `archive`, `cubin`, `fatbin`, `ptx` or `other`."""
    size: int
    """Bytes."""
    containers: tuple[Container, ...] = ()
    needed: tuple[str, ...] = ()
    """Sonames of DT_NEEDED, in the file's order."""
    toolkit: str | None = None
    """CUDA release that made its machine code, where no libcudart is needed and it says so."""
    skipped: str | None = None
    """Why there is nothing to judge; None when there is device code."""
    problem: str | None = None
    """What is malformed or unreadable, naming the field; None for a whole file."""
