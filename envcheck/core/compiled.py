"""What compiling for one target left behind: facts about kernels and assemblers, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envcheck.core.kernels import Kernel

COMPILED_SCHEMA = "envcheck/compiled/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """What the guest is asked to compile."""

    target: str
    """`sm_120`."""
    root: str
    """The folder that holds the kernels' folders."""
    kernels: tuple[Kernel, ...]
    cache: str
    """A folder for Triton's cache; made when it is not there."""
    deadline: int = 120
    """Seconds for each function."""
    memory: int = 8 << 30
    """Bytes that each compile may take; one takes half a gigabyte at most."""
    parallel: int | None = None
    """How many at a time; None for one on each processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one piece of work ended in a process of its own."""

    status: str
    """`ok`, `raised`, `crashed`, `exited`, `timed-out`, or `not-applicable` where it was not run."""
    signal: str | None = None
    """`SIGABRT` and the like for `crashed`."""
    code: int | None = None
    """What the process gave to exit() for `exited`."""
    error: str | None = None
    """Type and text of the exception for `raised`, the reason for `not-applicable`; cut."""
    stdout: tuple[str, ...] = ()
    """First and last lines, cut."""
    stderr: tuple[str, ...] = ()
    """First and last lines, cut."""
    milliseconds: int = 0

    @property
    def ok(self) -> bool:
        """Whether the work came to its end and gave a value."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCode:
    """What the assembler made of one kernel, read from the cubin and the PTX before it."""

    target: str
    """`sm_120a`: what the cubin itself says, which is not always what was asked for."""
    ptx_isa: str | None
    """`8.7`; None where Triton kept no PTX."""
    registers: int
    """For each thread."""
    stack_bytes: int
    """Local memory of each thread: spilled registers and arrays that did not fit into them."""
    static_shared: int
    """Bytes of shared memory of a block that are fixed in the cubin."""
    dynamic_shared: int
    """Bytes of shared memory of a block that the launch asks for."""
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One function of one kernel, compiled for one dtype and one configuration."""

    kernel: str
    function: str
    dtype: str
    config: str
    """`BLOCK_M=128 BLOCK_N=256 num_warps=8 num_stages=4`."""
    outcome: Outcome
    message: str = ""
    """The first line that says why it failed; empty when it did not."""
    warnings: tuple[str, ...] = ()
    """What the compiler said of a kernel that it did compile."""
    code: MachineCode | None = None
    """None unless the outcome is `ok`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernels:
    """All Triton kernels, compiled for one target by the Triton of one environment."""

    schema: str = COMPILED_SCHEMA
    target: str
    """`sm_120`: what was asked for."""
    triton: str | None
    """Version, None when it could not be imported."""
    outcome: Outcome
    """Of the process that imported Triton and started the others."""
    message: str = ""
    """Why it failed; empty when it did not."""
    variables: Mapping[str, str]
    """Every `TRITON_*` variable that was set: they change what is compiled, and how."""
    compilations: tuple[Compilation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblerProbe:
    """One assembler that the environment would use, tried on three lines of PTX."""

    name: str
    """`ptxas`, `ptxas-blackwell` or `nvrtc`."""
    origin: str
    """Who would use it: `triton`, the variable that names it, or `toolkit`."""
    path: str
    """Relative to its site directory where it lies in one, else absolute."""
    version: str | None
    """CUDA release such as `12.8`, None when it did not say."""
    target: str
    """`sm_120` or `sm_120a`."""
    accepted: bool
    message: str = ""
    """Its own first error line, or how it ended; empty when it accepted the target."""
    outcome: Outcome
