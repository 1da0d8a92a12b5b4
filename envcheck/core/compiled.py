"""What compiling for one target left behind: facts about kernels and assemblers, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envcheck.core.device_file import DeviceFile


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
    problem: str = ""
    """The part of `config` that the problem sets; another configuration with the same may stand
    in for this one."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel:
    """One CUDA C++ kernel, built as a PyTorch extension and read back from its file."""

    kernel: str
    asked: str
    """TORCH_CUDA_ARCH_LIST of the build, such as `12.0`."""
    outcome: Outcome
    """Of the process that built and loaded it."""
    message: str = ""
    """The first line that says why it failed; empty when it did not."""
    file: DeviceFile | None = None
    """What the built library holds; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernels:
    """All CUDA C++ kernels, built for one target by the toolchain of one environment."""

    torch: str | None
    """Version, None when it could not be imported."""
    nvcc: str | None
    """CUDA release of nvcc such as `13.0`; None where there is none, and nothing was built."""
    outcome: Outcome
    """Of the process that imported torch and started the others."""
    message: str = ""
    kernels: tuple[CudaKernel, ...] = ()
    own: bool = True
    """Whether nvcc belongs to what was built, and not to whatever is on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension that the user named: how it was built, and how importing it ended."""

    name: str
    """Its import name."""
    origin: str
    """The requirement, or the name of the source folder."""
    built: bool | None
    """None for one that was not built here but installed by the lock."""
    seconds: float | None = None
    """Of the build."""
    said: tuple[str, ...] = ()
    """What its build said last, and what the compiler called an error; empty when it worked."""
    imported: Outcome | None = None
    """Of a process that did nothing but import it; None where it was not tried."""
    message: str = ""
    """The line that says why importing it failed; empty when it did not."""
    cuda_sources: bool = False
    """Whether there are .cu files among its sources; False where they are not here."""
    smoke: str | None = None
    """`module:callable`, to be called on a card; None where nobody named one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What compiling for one target left behind. It says nothing about any other target."""

    target: str
    """`sm_120`."""
    outcome: Outcome
    """Of the process in which all of it was done."""
    message: str = ""
    triton: CompiledKernels | None = None
    """None where there was nothing to compile or no Triton."""
    cuda: CudaKernels | None = None
    """None where CUDA C++ kernels were not asked for."""
    assemblers: tuple[AssemblerProbe, ...] = ()
    extensions: tuple[Extension, ...] = ()
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Each kernel that was asked for, with the digest of its folder."""
