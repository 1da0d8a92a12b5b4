"""What the metadata of installed packages says and how their files agree with it: facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Modules that Python loads as machine code, what `import torch` opens or asks for by its path
# (torch/__init__.py, _load_global_deps and _manager_path), and what Triton opens to compile its
# kernels (triton/backends/nvidia/driver.py and compiler.py; cuda.h by driver.c).
_VITAL = re.compile(
    r"\.(cpython-\w+|abi3)[\w.-]*\.so$"
    r"|^torch/(lib/libtorch_global_deps\.so|bin/torch_shm_manager)$"
    r"|^triton/backends/nvidia/(driver\.c|include/cuda\.h|lib/libdevice\.10\.bc)$"
)
_ASIDE = re.compile(
    r"(^|/)(_?tests?|docs?|examples?|benchmarks?)/"
    r"|(^|/)(test_[^/]*|[^/.]*_tests?|conftest|setup)\.[^/]*$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecodable:
    """A file that the interpreter reads when it starts, and cannot decode."""

    path: str
    encoding: str
    """With which it would be decoded: the locale's, or UTF-8."""
    offset: int
    """Where the first byte stands that does not fit."""
    is_utf8: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What an environment's Python would load and how markers see it."""

    markers: Mapping[str, str]
    """The variables of environment markers (PEP 508) that describe this machine's Python."""
    suffixes: tuple[str, ...]
    """What it takes for an extension module: `.cpython-311-x86_64-linux-gnu.so`, `.abi3.so`."""
    undecodable: tuple[Undecodable, ...] | None = None
    """What keeps it from starting; None where that was not looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One dist-info directory."""

    name: str
    """Normalised."""
    version: str
    info: str
    """`torch-2.14.1.dist-info`."""
    place: int = 0
    """Which site directory it is in, in the order of `sys.path`."""
    installer: str | None = None
    """`pip`, `uv`, `conda`."""
    has_record: bool = True
    """Whether a RECORD lies in its directory."""
    gone: tuple[str, ...] = ()
    """What it is imported from, where it is installed in place, and that is not there."""
    requires_python: str | None = None
    tags: tuple[str, ...] = ()
    """Tag lines of WHEEL: `cp311-cp311-manylinux_2_28_x86_64`."""
    problem: str | None = None
    """Why its metadata tells nothing, what it requires neither; None where it does."""
    requires: tuple[str, ...] = ()
    """Requires-Dist without those that an extra alone asks for; markers are left in."""
    with_cuda: tuple[str, ...] = ()
    """Requires-Dist of the extra `with-cuda`: the libraries that JAX's plugin was compiled with."""

    @property
    def is_exact(self) -> bool:
        """Whether its installer leaves files as RECORD says.

        Debian, which names none, strips libraries afterwards, and conda writes its own folder
        into them.
        """
        return (self.installer or "").lower().startswith(("pip", "uv", "poetry", "pdm"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Paths that two packages or more say are theirs."""

    owners: tuple[str, ...]
    """`onnxruntime 1.20.1`, sorted."""
    identical: int = 0
    """How many paths have the same hash in all of them."""
    differing: int = 0
    compiled: int = 0
    """How many of the differing paths are compiled."""
    paths: tuple[str, ...] = ()
    """The first of the differing ones, compiled ones before others."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Owner -> how many of the differing paths have its content on disk, as far as told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """Files of one package that are not as its RECORD says."""

    owner: str
    """`torch 2.14.1`."""
    how: str
    """`missing`, `empty`, `size`, `hash` or `unreadable`; `syntax` for a module of another size
    that is no Python, `form` for one that is there in another form, such as bytecode alone."""
    compiled: int = 0
    """How many of them are compiled."""
    code: int = 0
    """How many are Python modules."""
    count: int
    of: int
    """How many files its RECORD names below its site directory, without bytecode and metadata."""
    paths: tuple[str, ...] = ()
    """The first of them: METADATA, what is vital, what else is compiled, and others; last what
    lies beside a package, such as its tests."""
    optional: tuple[str, ...] = ()
    """Extension modules that the package does without: it tries to import them, and goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where importing a package ends, by what its files import whatever happens."""

    owner: str
    path: str
    """A module of it that is missing, empty or no Python."""
    how: str
    """As in `Differing`."""
    by: str = ""
    """The file that imports it; empty for what the package begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """How the files on disk were compared with RECORD."""

    sized: int = 0
    """Files whose size was compared."""
    hashed: int = 0
    """Those of them whose hash was compared too; the others were not hashed."""
    hash_bound: int = 0
    """Bytes: no file above it was hashed."""
    differing: tuple[Differing, ...] = ()
    ends: tuple[End, ...] = ()


def is_vital(path: str) -> bool:
    """Say whether a path is needed whatever a package is used for."""
    return _VITAL.search(path) is not None and not is_aside(path)


def is_aside(path: str) -> bool:
    """Say whether a path is beside what a package works with: tests, documentation, examples."""
    return _ASIDE.search(path) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Extension modules of one package that no suffix of the interpreter fits."""

    owner: str
    suffix: str
    """`.cpython-310-x86_64-linux-gnu.so`."""
    count: int
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """A module of an installed package, instead of which another file is imported."""

    owner: str
    """`torch 2.14.1`."""
    module: str
    path: str
    """What is imported: of no package, in a folder that comes before on `sys.path`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumpyUse:
    """Extension modules of one package that use NumPy's C API in the same way."""

    owner: str
    headers: int
    """1 or 2: the major of the NumPy whose headers they were compiled with."""
    least: str | None = None
    """`1.23`: the oldest NumPy that they accept; headers of NumPy 1 do not leave it there."""
    count: int
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """All of it, for one environment."""

    interpreter: Interpreter
    packages: tuple[Package, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    records: Records = field(default_factory=Records)
    foreign: tuple[Foreign, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    numpy: tuple[NumpyUse, ...] = ()
    numpy_unread: int = 0
    """Extension modules that were too large, too many or unreadable to look for NumPy in."""
