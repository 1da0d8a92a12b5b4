"""TORCH_CUDA_ARCH_LIST: its grammar, and which cards what is built with it would serve.

Source: `_get_cuda_arch_flags` in `torch/utils/cpp_extension.py` of PyTorch 2.14.1: spaces count
as semicolons, names are replaced by numbers, and an item that is left empty is refused too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from envcheck.core.sm import KNOWN, Sm, ptx_fits, sass_runs_on

_ITEM = re.compile(r"([0-9]{1,2})\.([0-9])([af]?)(\+PTX)?")
# In PyTorch's order: a name that holds another one comes first.
_NAMES = (
    ("Kepler+Tesla", "3.7"), ("Kepler", "3.5+PTX"), ("Maxwell+Tegra", "5.3"),
    ("Maxwell", "5.0;5.2+PTX"), ("Pascal", "6.0;6.1+PTX"), ("Volta+Tegra", "7.2"),
    ("Volta", "7.0+PTX"), ("Turing", "7.5+PTX"), ("Ampere+Tegra", "8.7"),
    ("Ampere", "8.0;8.6+PTX"), ("Ada", "8.9+PTX"), ("Hopper", "9.0+PTX"),
    ("Blackwell+Tegra", "11.0"), ("Blackwell", "10.0;10.3;12.0;12.1+PTX"), ("Rubin", "10.7+PTX"),
)  # fmt: skip
# SMs that PyTorch's list still has and no toolkit of `core.sm`, and Thor's first name.
_OTHERS = (35, 37, 101)


@dataclass(frozen=True, slots=True)
class Arch:
    """One item of the list."""

    sm: Sm
    ptx: bool


def parse(text: str) -> tuple[Arch, ...] | None:
    """Read a list, None for one that asks for the card that is there; raises ValueError."""
    if text in ("", "native"):
        return None
    wanted = text.replace(" ", ";")
    for name, numbers in _NAMES:
        wanted = wanted.replace(name, numbers)
    return tuple(map(_arch, wanted.split(";")))


def _arch(item: str) -> Arch:
    if not item:
        message = "an item is empty (a semicolon or space too many)"
        raise ValueError(message)
    match = _ITEM.fullmatch(item)
    if match is None:
        hint = ": semicolons part them" if "," in item else ""
        message = f"{item!r} is not a compute capability such as 8.9 or 9.0+PTX{hint}"
        raise ValueError(message)
    number = int(match[1]) * 10 + int(match[2])
    if number not in KNOWN and number not in _OTHERS:
        message = f"there is no compute capability {match[1]}.{match[2]}"
        raise ValueError(message)
    return Arch(Sm(number, match[3]), match[4] is not None)


def serves(archs: tuple[Arch, ...], target: Sm) -> bool:
    """Say whether code that is built for these archs runs on a card."""
    return any(
        sass_runs_on(arch.sm, target) or (arch.ptx and ptx_fits(arch.sm, target)) for arch in archs
    )
