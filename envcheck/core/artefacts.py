"""What was made for one card or one model and lies about: caches, packages, engines, adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from envcheck.core.device_file import Container

TRITON, EXTENSION = "triton-cache", "torch-extension"
AOT, ENGINE = "aot-package", "tensorrt-engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """Compiled code that a job finds ready, or one folder of a cache."""

    path: str
    """The file, or the folder that holds the entries of a cache."""
    kind: str
    """`triton-cache`, `torch-extension`, `aot-package` or `tensorrt-engine`."""
    entries: int = 1
    """How many kernels of a cache were taken together."""
    parts: tuple[Container, ...] = ()
    """The device code in it, or what its metadata says that it was made for."""
    says: Mapping[str, str] = field(default_factory=dict)
    """What its own metadata says: `device`, `capability`, `version`."""
    others: tuple[str, ...] = ()
    """Targets of another maker, such as `hip gfx942`."""
    problem: str | None = None
    """Why its device code cannot be told."""
    damaged: str | None = None
    """Why what loads it raises or dies; of a cache then `path` is the folder of the one entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Keys of an adapter that have something in common, with one of them."""

    mark: str
    """A stable word, see `envcheck.guest.adapters`."""
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One safetensors file with LoRA weights, or with the name under which PEFT looks for them."""

    path: str
    pairs: int = 0
    """Modules that have both a `lora_A` and a `lora_B`."""
    others: int = 0
    """Tensors beside those: of modules saved whole, biases, magnitudes."""
    for_peft: bool = False
    """Whether it has the one name under which PEFT looks for weights."""
    settings: str | None = None
    """What PEFT's `adapter_config.json` beside it says, as JSON; see `core.adapter_settings`."""
    unconfigured: str | None = None
    """Why there are no settings."""
    marks: tuple[Marked, ...] = ()
    zero: int = 0
    """Modules of which one side is zero throughout, so that its product is."""
    unread: int = 0
    """Tensors that were not read, because that much is never read."""
    unmatched: bool = False
    """Whether a pattern of the settings took too long to be compared with the modules."""
    base: str | None = None
    """The folder of the base model, where one on this machine is named and could be read."""
    base_unsized: str | None = None
    """Why no size was compared with that base."""
    unlike_base: tuple[Marked, ...] = ()
    """Names that this base model does not have, or has beside them, and tensors of another size."""
    problem: str | None = None


def grouped(artefacts: Iterable[Artefact]) -> tuple[Artefact, ...]:
    """Take the entries of one cache folder together; everything else stays as it is."""
    found: dict[tuple[str, str], Artefact] = {}
    for one in artefacts:
        key = (one.kind, one.path)
        known = found.get(key)
        found[key] = one if known is None else _joined(known, one)
    return tuple(found.values())


def _joined(first: Artefact, second: Artefact) -> Artefact:
    parts = {(p.section, p.code): p for p in first.parts}
    for part in second.parts:
        known = parts.get((part.section, part.code))
        count = part.count + (known.count if known is not None else 0)
        parts[part.section, part.code] = replace(part, count=count)
    return replace(
        first,
        entries=first.entries + second.entries,
        parts=tuple(parts.values()),
        says={**first.says, **second.says},
        others=tuple(sorted({*first.others, *second.others})),
        problem=first.problem or second.problem,
        damaged=first.damaged or second.damaged,
    )
