"""What a job would compile with: compilers, headers, nvcc, cache folders; facts, free of I/O.

Triton, `torch.compile` and packages that build their kernels at first use need them while a job
runs, and an image for running often lacks them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """The compiler that would be run for one language."""

    language: str
    """`c`, `c++`, or `nvcc` for the one that nvcc compiles its host code with."""
    origin: str
    """`CC`, `CXX`, `NVCC_CCBIN` or `PATH`: what names it."""
    named: str
    """The command as it was named."""
    path: str | None
    """Where that is: by its whole name, else by its words, behind a launcher such as ccache; None
    where there is no such program."""
    family: str | None = None
    """`gcc` or `clang`, None where its name does not tell."""
    version: int | None = None
    """Its major version, from its own files; None where they do not tell."""
    kind: str | None = None
    """`compiler`, `launcher`, `script` (of which that is not known) or `other`; None where it was
    not looked at."""
    one_name: bool = True
    """Whether the whole of `named` is the name of a program, as it is to Triton."""
    as_words: bool = True
    """Whether it is a command that is there, once it is split into words as a shell does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvcc:
    """The nvcc that torch.utils.cpp_extension would run."""

    origin: str
    """`CUDA_HOME`, `CUDA_PATH`, `PATH` or `/usr/local/cuda`."""
    home: str
    """The folder that is taken for the toolkit's."""
    path: str | None
    """None where the folder holds no `bin/nvcc`."""
    release: str | None = None
    """CUDA release such as `13.0`, None where its files do not tell."""
    newest_gcc: int | None = None
    """The limit in `crt/host_config.h`: a newer gcc is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One folder in which something is cached or built while a job runs."""

    role: str
    """`triton`, `inductor`, `extensions`, `cuda` or `temporary`."""
    origin: str
    """The variable that names it, or `default`."""
    path: str
    exists: bool
    kind: str
    """What it is, or the nearest thing above it that exists: `folder`, `other`, `absent`."""
    writable: bool
    """Whether this user may write there, or make it."""
    refused: str | None = None
    """What the kernel answered when asked for a file without a name there, such as `EROFS`."""
    filesystem: str | None = None
    """Type of its file system as the kernel calls it, None where that was not told."""
    read_only: bool = False
    """Whether its file system is mounted read-only."""
    noexec: bool = False
    """Whether its file system is mounted so that no library can be loaded from it."""
    free: int | None = None
    """Bytes that this user may still write there, where less than a gigabyte; None otherwise, so
    that two looks at one machine give the same document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """The folder through which processes of one job share memory: `/dev/shm`."""

    path: str
    exists: bool
    writable: bool = False
    """Whether this user may make files there."""
    size: int | None = None
    """Bytes of its file system, used or not; None where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One variable that names something, of a fixed list; values are paths, flags or arch lists."""

    variable: str
    value: str
    found: str
    """`file`, `folder`, `other`, `absent` or `program` for paths and commands; `text` otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """All that was looked for."""

    compilers: tuple[Compiler, ...] = ()
    """Those that are there or named; a language without one has none."""
    python_header: str | None = None
    """Where `Python.h` of the base interpreter has to be; None where that is not known."""
    python_header_exists: bool = False
    ldconfig: bool = False
    """Whether /sbin/ldconfig is there, which Triton runs to find the driver's library."""
    libcuda: tuple[str, ...] = ()
    """Folders with `libcuda.so.1`, where Triton looks for it."""
    libcuda_link: tuple[str, ...] = ()
    """Folders with `libcuda.so`, where the linker looks for `-lcuda`."""
    nvcc: Nvcc | None = None
    ninja: str | None = None
    home: bool = True
    """Whether this user has a home folder that is named by HOME or the user database."""
    folders: tuple[Folder, ...] = ()
    shared: SharedMemory | None = None
    """None where it was not looked for."""
    named: tuple[Named, ...] = ()
