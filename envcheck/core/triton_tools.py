"""Which of its assemblers a Triton runs for a card, and for which target it asks.

Source: triton/backends/nvidia/compiler.py, get_ptxas and sm_arch_from_capability: 3.3 to 3.8
take `ptxas-blackwell` from capability 100 up, 3.9 from 90 up; releases without it know only
`ptxas`. From capability 90 up Triton asks for the arch-specific target.
"""

from __future__ import annotations

from collections.abc import Collection

from envcheck.core import cuda
from envcheck.core.sm import Sm

SECOND = "ptxas-blackwell"
_SECOND_FROM = ((3, 9), 90), ((0,), 100)
_SPECIFIC_FROM = 90


def chosen(version: str, names: Collection[str], sm: Sm) -> str | None:
    """Return which of the bundled assemblers Triton `version` runs for `sm`; None without one."""
    try:
        parsed = cuda.parse_version(".".join(version.split("+", maxsplit=1)[0].split(".")[:2]))
    except ValueError:
        parsed = (0,)
    second_from = next(number for least, number in _SECOND_FROM if parsed >= least)
    if sm.number >= second_from and SECOND in names:
        return SECOND
    return "ptxas" if "ptxas" in names else None


def emitted(sm: Sm) -> Sm:
    """Return the target that Triton asks its assembler for."""
    return Sm(sm.number, "a" if sm.number >= _SPECIFIC_FROM else "")
