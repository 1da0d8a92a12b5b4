"""What an environment is at the moment a job is to start in it: facts, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envcheck.core.cards import Cards


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentRequest:
    """How closely files are looked at; what it says of files comes from a manifest."""

    since: float
    """Compiled files changed at this time (seconds since 1970) or later are hashed."""
    deep: bool = False
    """Whether all files are looked at, and hashed."""
    files: tuple[str, ...] = ()
    """Paths relative to a site directory, whose size is to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentDistribution:
    """One installed distribution, as in `envcheck.core.model.Distribution`."""

    name: str
    version: str
    record_digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentDifference:
    """One file that is not as its RECORD says."""

    owner: str
    """`torch 2.14.1`."""
    path: str
    how: str
    """`missing`, `size`, `hash` or `unreadable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyCard:
    """The one card of a machine, as NVML names it: in the words of CUDA, as of `DriverCard`."""

    name: str
    sm: str
    uuid: str
    module: str | None
    """Version of the kernel module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """One environment and its machine, as its interpreter finds them now."""

    python: str
    implementation: str
    platform: str
    libc: str
    digest: str
    """As the manifest's subject: `sha256:...`."""
    distributions: tuple[PresentDistribution, ...]
    sizes: Mapping[str, int | None]
    """Of the files that were asked for; None for one that is in no site directory."""
    sized: int
    """Files whose size was compared with RECORD."""
    hashed: int
    """Those of them whose hash was compared too."""
    differing: tuple[PresentDifference, ...]
    only: OnlyCard | None = None
    """None where it takes CUDA to tell which card a job would see."""
    cards: Cards | None = None
    """What CUDA says; None where there is no doubt without."""
