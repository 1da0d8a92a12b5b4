"""What the loader would make of an environment: facts, free of I/O; field names are those in documents.

Only what went wrong or what was chosen among several is here, never whole tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """One symbol that nothing in reach exports."""

    name: str
    """As the linker knows it, mangled."""
    version: str | None = None
    by: str
    """The file that wants it."""
    near: str | None = None
    """A name that differs in its arguments alone, where a library has one."""
    near_in: str | None = None
    """That library; without `near`, the copy of the one that should have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLibrary:
    """A needed library that the loader does not find, or that it refuses."""

    name: str
    by: str
    """The file that needs it."""
    reason: str = ""
    """Why one that was found is refused; empty where there is none."""
    elsewhere: tuple[str, ...] = ()
    """Files of that name in the environment, where the loader does not look."""
    others: tuple[str, ...] = ()
    """Libraries of the same family and another major version that are in reach."""
    refused: str = ""
    """The file that is refused, at which the loader ends."""
    behind: str = ""
    """What the loader would take if that file were not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingVersion:
    """A version of a library's symbols that the copy the loader finds does not define."""

    name: str
    """`GLIBCXX_3.4.32`."""
    library: str
    """`libstdc++.so.6`."""
    by: str
    """The file that needs it."""
    found: str
    """The copy that the loader takes."""
    newest: str | None = None
    """The newest version of the same kind that it defines."""
    elsewhere: tuple[str, ...] = ()
    """Other copies in reach that do define it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One file that a job could load, and what is wrong with that."""

    path: str
    """Relative to its site directory, as in `files`."""
    module: bool
    """Whether Python imports it; else it is loaded by something else."""
    torch: bool = False
    """Whether it needs PyTorch's libraries."""
    imported: bool | None = None
    """Whether a module of its package imports it at its top, outside of any `try`;
    None where that was not looked at."""
    refused: str = ""
    """Why the loader does not take the file itself."""
    libraries: tuple[MissingLibrary, ...] = ()
    versions: tuple[MissingVersion, ...] = ()
    symbols: tuple[Unresolved, ...] = ()
    """The first of them."""
    symbol_count: int = 0
    """How many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which copy of one library a process gets."""

    name: str
    """Its soname."""
    path: str
    how: str
    """What led to it: `LD_PRELOAD`, `RPATH`, `LD_LIBRARY_PATH`, `RUNPATH`, `ld.so.cache`, `default folder`,
    `path`."""
    asked_by: str | None = None
    opened: str
    """The file whose loading brought it."""
    torch: bool = False
    """Whether that was in a process that has imported PyTorch."""
    others: tuple[str, ...] = ()
    """Other copies in the environment or on the loader's path."""
    refused: str = ""
    """Why the loader ends at that copy, which it cannot load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByName:
    """A library that another one opens by name while it works."""

    name: str
    opener: str
    path: str | None = None
    """None where the loader does not find it."""
    how: str = ""
    version: str | None = None
    """What the file says of itself; None where it does not tell."""
    opener_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """What the loader would make of the compiled files of one environment."""

    skipped: str = ""
    """Why nothing was looked at."""
    looked_at: int = 0
    """How many files were opened, as the loader does."""
    symbols: int = 0
    """How many symbols were looked up."""
    library_path: tuple[str, ...] = ()
    """LD_LIBRARY_PATH."""
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """What LD_PRELOAD names and the loader ignores -> why."""
    files: tuple[Opened, ...] = ()
    """Those with which something is wrong."""
    choices: tuple[Choice, ...] = ()
    """Of the libraries of CUDA, and of those of the compiler."""
    by_name: tuple[ByName, ...] = ()
    defined: Mapping[str, str] = field(default_factory=dict)
    """The newest version that the process's own libc, libstdc++ and so on define."""
    majors: tuple[tuple[str, ...], ...] = ()
    """Copies of the CUDA runtime that are in one process together."""
