"""The values that travel through the pipeline: frozen, saveable, free of I/O.

`Inventory` holds facts only; `Report` holds judgement only. `codec` turns both into JSON
and back, so field names here are the names in the documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from envcheck.core.artefacts import Adapter, Artefact
from envcheck.core.compiled import Compiled
from envcheck.core.device_file import DeviceFile
from envcheck.core.distribution import Distribution
from envcheck.core.executed import Executed
from envcheck.core.installed import Installed
from envcheck.core.limits import Limits
from envcheck.core.linking import Linked
from envcheck.core.machine import Machine
from envcheck.core.tools import Tools

Json = object
"""Any JSON value; lists are tuples."""

INVENTORY_SCHEMA = "envcheck/inventory/v1"
REPORT_SCHEMA = "envcheck/report/v1"
REPORTS_SCHEMA = "envcheck/reports/v1"


class Status(str, Enum):
    """How one finding ended. Nothing that was not looked at is ever a `pass`."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"


class Verdict(str, Enum):
    """The answer for one target; the exit code of the command is its own."""

    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> int:
        """0 compatible, 10 incompatible, 11 inconclusive."""
        return {"compatible": 0, "incompatible": 10, "inconclusive": 11}[self.value]


class Assurance(str, Enum):
    """How far the evidence goes; it never claims more than was done."""

    SCANNED = "scanned"
    COMPILED = "compiled"
    EXECUTED = "executed"


class Domain(str, Enum):
    """Whose fault a finding is."""

    HOST = "host"
    CARD = "card"
    IMAGE = "image"
    PACKAGE = "package"
    KERNEL = "kernel"
    JOB = "job"
    ENVCHECK = "envcheck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is wanted: the card or architecture to judge for."""

    name: str
    """As the user named it: `blackwell`, `rtx-5090` or `sm_120`."""
    sm: str
    """`sm_120`."""
    shared_memory_per_block: int | None = None
    """Bytes that one block may use there, opt-in; None where it is not known."""
    card: str | None = None
    """`NVIDIA H200`: the card that is here, where `native` was asked for."""
    limits: Limits | None = None
    """What the product can do at most; None for an architecture, and for an unknown product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """What PyTorch says of itself in its own files, read without importing it."""

    version: str
    cuda: str | None
    """CUDA version that it was built with, None for a CPU-only build."""
    hip: str | None = None
    arch_list: tuple[str, ...] = ()
    """The list that `torch.cuda.get_arch_list()` would return, read from libtorch_python.so."""
    cxx11_abi: bool | None = None
    """True for the C++11 ABI, False for the old one, None where libc10.so does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembler:
    """One PTX assembler that ships inside Triton."""

    name: str
    """`ptxas` or `ptxas-blackwell`."""
    version: str | None
    """CUDA release such as `12.8`, None when the binary does not tell."""
    problem: str | None = None
    """Why nobody can run it: `is cut off`; None where nothing speaks against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triton:
    """The installed Triton and the assemblers that it would run."""

    version: str
    assemblers: tuple[Assembler, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The container image that an environment is in, as the engine describes it."""

    reference: str
    """As the user named it."""
    id: str
    """`sha256:...` of its configuration: the same bytes have the same id."""
    digests: tuple[str, ...] = ()
    """`name@sha256:...` as registries know it; empty for an image that was never there."""
    labels: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of its variables that say what is in it; others may hold secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One Python environment, read without importing anything of it."""

    python: str
    """Version such as `3.11.7`."""
    implementation: str
    platform: str
    libc: str
    digest: str
    """`sha256:` + digest over the distributions; the manifest's subject."""
    distributions: tuple[Distribution, ...] = ()
    torch: Torch | None = None
    triton: Triton | None = None
    driver: str | None = None
    """NVIDIA kernel driver of this machine, None when there is none."""
    compat: tuple[str, ...] = ()
    """Drivers whose libcuda a package for forward compatibility (cuda-compat) brings."""
    image: Image | None = None
    """None for an environment that is not in an image."""
    content: str | None = None
    """`sha256:...` over everything in the image or folder, as
    `envcheck.engine.content_digest` describes it; None where it was not computed."""
    variables: Mapping[str, str] | None = None
    """Environment variables that choose between files, codes and cards: `core.variables` lists them."""
    installed: Installed | None = None
    """What the packages' metadata says, and whether their files agree; None where unread."""
    tools: Tools | None = None
    """What a job would compile with; None where that was not looked for."""
    caches: tuple[Artefact, ...] | None = None
    """What lies in the caches that a job here would use; None where that was not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What a second build from the same recipe, without a cache, gave."""

    first: str
    """Content digest of the first build; the environment's own is that of the second."""
    differing: int
    """How many paths differ."""
    differences: tuple[str, ...] = ()
    """The first of them: `path: what differs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Facts about files or about one environment; nothing here is judged."""

    schema: str = INVENTORY_SCHEMA
    source: str
    """`files` for scan, `environment` for check."""
    files: tuple[DeviceFile, ...] = ()
    passed_over: int = 0
    """Files that were seen and are of no format that can hold device code."""
    environment: Environment | None = None
    artefacts: tuple[Artefact, ...] = ()
    """Caches, packages and engines among files that were given."""
    adapters: tuple[Adapter, ...] = ()
    """LoRA adapters among files that were given."""
    compiled: Compiled | None = None
    """None where nothing was compiled."""
    executed: Executed | None = None
    """None where nothing was run on a card."""
    rebuilt: Rebuilt | None = None
    """None where it was not built twice."""
    linked: Linked | None = None
    """What the loader would make of it; None where that was not worked out."""
    machine: Machine | None = None
    """The machine around the card; None where nobody asked for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check says about one subject."""

    check: str
    subject: str
    status: Status
    message: str
    remedy: str = ""
    domain: Domain = Domain.PACKAGE
    evidence: Mapping[str, Json]
    required: bool = True
    """False when the verdict does not rest on it (a variant that would not be loaded)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The judgement of one inventory for one target."""

    schema: str = REPORT_SCHEMA
    target: Target
    driver: str | None
    verdict: Verdict
    assurance: Assurance
    required_assurance: Assurance = Assurance.SCANNED
    """What was asked for; with less than that a report is inconclusive."""
    findings: tuple[Finding, ...]
    summary: Mapping[str, Json]
