"""Architectures and cards from `images/targets.toml`, and the names that users give them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from envcheck.core.driver_facts import DriverCard
from envcheck.core.limits import Expected, Limits
from envcheck.core.model import Target
from envcheck.core.sm import Sm
from envcheck.errors import DocumentInvalid, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What `envcheck build` makes for one GPU generation."""

    torch_cuda_arch_list: str
    python: str
    """`3.12`, the one of `base`."""
    torch: str
    cuda: str
    base: str
    base_digest: str | None = None
    """`sha256:...`; None where no published digest is known."""
    lock: str
    """Relative to the data file, as is `builder_lock`."""
    builder_lock: str
    driver: str
    """The least NVIDIA driver that serves this CUDA and this generation."""
    nvidia_require_cuda: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One GPU generation."""

    name: str
    sm: str
    shared_memory_per_block: int
    """Bytes that one block may use, opt-in."""
    image: Image | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One product."""

    name: str
    title: str
    architecture: str
    reported: tuple[str, ...] = ()
    """The names that the driver gives it."""
    memory_gb: int | None = None
    """Gigabytes as the maker states them; None where no source was found, as with all below."""
    bandwidth: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    power: float | None = None
    pcie: int | None = None
    source: str

    @property
    def limits(self) -> Limits:
        """What it can do at most."""
        return Limits(
            card=self.name,
            memory_gb=self.memory_gb,
            bandwidth=_real(self.bandwidth),
            bf16=_real(self.bf16),
            fp8=_real(self.fp8),
            power=_real(self.power),
            pcie=self.pcie,
            source=self.source,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All known architectures and cards, in the order of the data file."""

    architectures: tuple[Architecture, ...]
    cards: tuple[Card, ...]


def data_file() -> Path:
    """Return where `targets.toml` lies: in the installed package, or in the checkout."""
    here = Path(__file__).parent
    packaged = here / "images" / "targets.toml"
    return packaged if packaged.exists() else here.parent / "images" / "targets.toml"


def load(text: str) -> Catalogue:
    """Build a catalogue from TOML; raises DocumentInvalid that names the row."""
    try:
        data: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(text)
        architectures = tuple(
            Architecture(name=name, **row | {"image": _image(row.get("image"))})
            for name, row in data["architectures"].items()
        )
        cards = tuple(
            Card(name=name, **row | {"reported": tuple(row.get("reported", ()))})
            for name, row in data["cards"].items()
        )
    except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        message = f"targets.toml: {error}"
        raise DocumentInvalid(message) from None
    names = {a.name for a in architectures}
    for architecture in architectures:
        if not re.fullmatch(r"sm_\d{2,3}", architecture.sm):
            message = f"targets.toml: architectures.{architecture.name}.sm: {architecture.sm!r}"
            raise DocumentInvalid(message)
        digest = architecture.image.base_digest if architecture.image is not None else None
        if digest is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            message = (
                f"targets.toml: architectures.{architecture.name}.image.base_digest: {digest!r}"
            )
            raise DocumentInvalid(message)
    for card in cards:
        if card.architecture not in names or card.name in names:
            message = f"targets.toml: cards.{card.name}: architecture {card.architecture!r}"
            raise DocumentInvalid(message)
    return Catalogue(architectures=architectures, cards=cards)


def _real(value: float | None) -> float | None:
    """Return what TOML may give as a whole number, which a document would not read back."""
    return None if value is None else float(value)


def _image(row: dict[str, Any] | None) -> Image | None:
    return None if row is None else Image(**row)


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """Return the catalogue that ships with envcheck."""
    return load(data_file().read_text(encoding="utf-8"))


def resolve(name: str) -> Target:
    """Find a target by architecture, `sm_NN` or card; raises UsageError with what is known."""
    known = catalogue()
    by_name = {a.name: a for a in known.architectures}
    wanted = _plain(name)
    if wanted in by_name:
        return _target(wanted, by_name[wanted].sm)
    for card in known.cards:
        if wanted in (card.name, card.name.replace("-", ""), _plain(card.title)):
            return replace(_target(card.name, by_name[card.architecture].sm), limits=card.limits)
    if re.fullmatch(r"sm-?[1-9]\d{1,2}", wanted):
        sm = str(Sm(int(wanted.removeprefix("sm").lstrip("-"))))
        return _target(sm, sm)
    if re.fullmatch(r"sm-?\d{2,3}[af]", wanted):
        message = f"unknown target {name!r}: a card has no suffix, it runs its own a and f code"
        raise UsageError(message, remedy=f"--arch sm_{wanted.removeprefix('sm').lstrip('-')[:-1]}")
    message = f"unknown target {name!r}: not an architecture, a card or sm_NN"
    raise UsageError(message, remedy=f"envcheck targets (architectures: {', '.join(by_name)})")


def expected(name: str) -> Expected:
    """Return what a rented card or architecture should be; raises UsageError as `resolve` does."""
    target = resolve(name)
    card = next((c for c in catalogue().cards if c.name == target.name), None)
    return Expected(
        name=target.name,
        sm=target.sm,
        reported=card.reported if card is not None else (),
        limits=target.limits,
    )


def of_card(card: DriverCard) -> Target:
    """Return the target that a card is; by its `sm_NN` where no architecture has that."""
    row = architecture(card.sm)
    known = row.shared_memory_per_block if row is not None else card.shared_memory_per_block
    name = row.name if row is not None else card.sm
    product = reported(card.name)
    return Target(
        name=name,
        sm=card.sm,
        shared_memory_per_block=known or None,
        card=card.name,
        limits=product.limits if product is not None else None,
    )


def reported(name: str) -> Card | None:
    """Return the product to which the driver gives that name, None for one without a row."""
    return next((card for card in catalogue().cards if name in card.reported), None)


def architecture(sm: str) -> Architecture | None:
    """Return the row of an SM, None for one that is not in the catalogue."""
    return next((a for a in catalogue().architectures if a.sm == sm), None)


def _target(name: str, sm: str) -> Target:
    row = architecture(sm)
    shared = row.shared_memory_per_block if row is not None else None
    return Target(name=name, sm=sm, shared_memory_per_block=shared)


def _plain(name: str) -> str:
    """Return a name as it is compared: lower case, hyphens, without the maker's names."""
    words = re.sub(r"[\s_-]+", "-", name.strip().lower())
    return re.sub(r"^(nvidia-|geforce-)+", "", words)
