"""What every engine can do: build an environment, look at it, and run the guest in it.

An engine is where environments live (Docker, or a venv on this machine). It returns facts
and raises errors of `envcheck.errors`; it judges nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from envcheck.core.request import Request
from envcheck.engine.content_digest import Content, Read
from envcheck.engine.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a build or a pull, as it is now."""

    id: str
    name: str
    state: str
    """`running`, `done`, `cached` or `failed`."""
    seconds: float | None = None
    """How long it took; None while it runs."""
    line: str = ""
    """What it just said; empty when it said nothing new."""


Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build left."""

    reference: str
    """What the other methods take: an image id `sha256:...`, or the folder of a venv."""
    seconds: float
    steps: tuple[Step, ...]
    """Each step once, in the order in which they began, in its last state."""
    log: Path
    """The full log, without credentials."""
    repeatable: bool
    """Whether a second build gives the same image digest, not only the same content digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What an engine knows of an image without starting it."""

    id: str
    """`sha256:...`, or the folder of a venv."""
    digests: tuple[str, ...]
    """`name@sha256:...` as registries know it; empty for an image that was never there."""
    architecture: str
    """`amd64`, `arm64`, ..."""
    os: str
    size: int
    """Bytes of all layers, unpacked; of a venv, those of its files."""
    user: str
    variables: Mapping[str, str]
    labels: Mapping[str, str]
    layers: tuple[str, ...]
    """`sha256:...` of each layer's tar; a venv has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a guest may take before it is ended; without a container, only its time."""

    seconds: float = 600
    memory: int = 8 << 30
    """Bytes, what it writes to its scratch folder included; there is no swap."""
    scratch: int = 4 << 30
    """Bytes of its only writable folder."""
    processes: int = 512
    gpus: str | None = None
    """Cards that it may use, as docker's --gpus names them; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a guest left behind."""

    document: bytes
    """The bytes of inventory.json: from a container, so to be parsed as untrusted."""
    output: str
    """The end of what it said on stdout and stderr: evidence, never an answer."""
    python: str
    """The interpreter that ran it."""
    seconds: float


class Engine(Protocol):
    """Where environments live. Every method may raise FileUnavailable and EnvcheckError."""

    name: str

    @property
    def environment(self) -> str:
        """The folder of what is built, as its own processes see it."""
        ...

    @property
    def toolchain(self) -> str:
        """The folder of `extensions.json` and, in `cuda`, of nvcc; in the stage `builder`."""
        ...

    @property
    def scratch(self) -> str:
        """The folder that a guest may write to, as it sees it; emptied after each."""
        ...

    def seen(self, name: str, path: Path) -> str:
        """Return where a guest sees the folder that `folders` gives it under `name`."""
        ...

    def close(self) -> None:
        """Let go of what is held, such as a connection."""
        ...

    def build(
        self, recipe: Recipe, *, log: Path, progress: Progress, stage: str = "final"
    ) -> Built:
        """Build one stage of a recipe: `final`, or `builder` with compilers and nvcc."""
        ...

    def inspect(self, reference: str, *, progress: Progress | None = None) -> ImageFacts:
        """Describe an environment, fetching it first when it is not here."""
        ...

    def run_guest(
        self,
        reference: str,
        request: Request,
        *,
        limits: Limits,
        python: str | None = None,
        folders: Mapping[str, Path] | None = None,
    ) -> Answer:
        """Run the guest with a request; it may read `folders`, where `seen` says."""
        ...

    def content(self, reference: str, *, read: Read | None = None) -> Content:
        """Read every entry for the content digest; `read` is told the bytes as they pass."""
        ...

    def read_file(self, reference: str, path: str, *, limit: int = 16 << 20) -> bytes:
        """Return one file of an environment, of at most `limit` bytes."""
        ...
