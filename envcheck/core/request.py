"""What the host asks the guest for, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envcheck.core.cards import Cards
from envcheck.core.compiled import Compiled
from envcheck.core.device_file import DeviceFile
from envcheck.core.executed import Executed
from envcheck.core.kernels import Kernel
from envcheck.core.linking import Linked
from envcheck.core.model import Environment

REQUEST_SCHEMA = "envcheck/request/v1"
COLLECTED_SCHEMA = "envcheck/collected/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """What is to be compiled, probed and imported for one target."""

    target: str
    """`sm_120`."""
    arch_list: str = ""
    """TORCH_CUDA_ARCH_LIST for CUDA C++ kernels, such as `12.0`."""
    root: str
    """The folder that holds the kernels' folders."""
    kernels: tuple[Kernel, ...] = ()
    """Those of kind `triton` are compiled by Triton, those of kind `cuda` by nvcc."""
    imports: tuple[str, ...] = ()
    """Modules to import, each in a process of its own."""
    cache: str
    """A folder for Triton's cache and for what is built; made when it is not there."""
    deadline: int = 120
    """Seconds for each function of a Triton kernel."""
    build_deadline: int = 900
    """Seconds for each CUDA C++ kernel."""
    import_deadline: int = 180
    """Seconds for each import."""
    memory: int = 8 << 30
    """Bytes that each compile may take; one of Triton takes half a gigabyte at most."""
    parallel: int | None = None
    """How many at a time; None for one on each processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeCall:
    """A function of the user's, which exercises one extension on the card and raises."""

    module: str
    """The extension, by its import name."""
    place: str
    """`package.module`, or the absolute path of a file as the guest sees it."""
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of a job for one operation, which are run before those of the catalogue."""

    op: str
    """`mm`."""
    sizes: Mapping[str, int]
    """By the operation's own names: `M`, `N`, `K`."""
    dtypes: tuple[str, ...] = ()
    """Empty for all that the operation has."""


PARTS = ("ops", "triton", "cuda", "extensions")
"""What can be run on a card, in order of value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteRequest:
    """What is to be run on a card."""

    parts: tuple[str, ...] = ("ops",)
    """Of PARTS."""

    budget: float = 60.0
    """Seconds; what does not fit is left out, the most valuable things come first."""
    seed: int = 1
    """Of all random operands."""
    families: tuple[str, ...] = ()
    """Of operations, such as `matmul`; empty for all."""
    device: str = "cuda"
    """`cpu` runs the same without a card, to try out the operations themselves."""
    sizes: tuple[Sizes, ...] = ()
    root: str = ""
    """The folder that holds the kernels' folders."""
    kernels: tuple[Kernel, ...] = ()
    """Those of kind `triton` are launched, and those of kind `cuda` that were built."""
    cache: str = ""
    """The folder where CUDA C++ kernels were built, as in CompileRequest."""
    arch_list: str = ""
    """That they were built with."""
    smokes: tuple[SmokeCall, ...] = ()
    """Beside those of the catalogue."""
    rate: float = 0.0
    """Seconds of the budget for measuring how fast the card multiplies, and whether it keeps
    giving the same; 0 for not at all."""
    exchange: bool = False
    """Whether several cards are to exchange data by NCCL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one run of the guest is to do; without `compile` and `execute` it only looks."""

    schema: str = REQUEST_SCHEMA
    read: bool = False
    """Whether the guest reads the compiled files too, or only says where they lie."""
    compile: CompileRequest | None = None
    execute: ExecuteRequest | None = None
    cards: bool = False
    """Whether the driver is asked for its cards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one compiled file lies."""

    path: str
    """Relative to its site directory: the same on every machine."""
    absolute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What the guest hands to the host."""

    schema: str = COLLECTED_SCHEMA
    environment: Environment
    places: tuple[Place, ...] = ()
    """What the host is to read itself, where it sees the same files."""
    files: tuple[DeviceFile, ...] = ()
    """What the guest has read already, where the host cannot."""
    compiled: Compiled | None = None
    executed: Executed | None = None
    cards: Cards | None = None
    linked: Linked | None = None
