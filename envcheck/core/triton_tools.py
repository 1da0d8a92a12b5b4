"""Which of its assemblers a Triton runs for a card, and for which target it asks.

Source: triton/backends/nvidia/compiler.py, get_ptxas and sm_arch_from_capability: 3.3 to 3.8
take `ptxas-blackwell` from capability 100 up, 3.9 from 90 up; 3.4, 3.5 and those before 3.3 know
only `ptxas`. None of them takes the one for want of the other. From capability 90 up Triton asks
for the arch-specific target.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from envcheck.core import cuda
from envcheck.core.sm import Sm

SECOND = "ptxas-blackwell"
_SECOND_FROM = ((3, 9), 90), ((0,), 100)
_WITHOUT_SECOND = (3, 4), (3, 5)
_SPECIFIC_FROM = 90


def is_release(version: str) -> bool:
    """Say whether it is a release's version: a build of one's own has a label, or is none."""
    return re.fullmatch(r"\d+\.\d+(\.\d+)*", version) is not None


def chosen(version: str, names: Collection[str], sm: Sm) -> str:
    """Return which assembler Triton `version`, which brings those of `names`, runs for `sm`.

    A release is known to run it even where it is gone; what another build runs is what it brings.
    """
    try:
        parsed = cuda.parse_version(".".join(version.split("+", maxsplit=1)[0].split(".")[:2]))
    except ValueError:
        parsed = (0,)
    second_from = next(number for least, number in _SECOND_FROM if parsed >= least)
    knows = is_release(version) and parsed >= (3, 3) and parsed not in _WITHOUT_SECOND
    return SECOND if sm.number >= second_from and (knows or SECOND in names) else "ptxas"


def emitted(sm: Sm) -> Sm:
    """Return the target that Triton asks its assembler for."""
    return Sm(sm.number, "a" if sm.number >= _SPECIFIC_FROM else "")
