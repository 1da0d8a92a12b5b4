"""Readable kernel names: `_ZN6marlin6MarlinILi1E...` is `marlin::Marlin`.

Template arguments are dropped on purpose: a library that dispatches by architecture
instantiates one template with other arguments per architecture, so the function, not the
instance, is what must exist for a card.
"""

from __future__ import annotations

import re

_ANONYMOUS = "_GLOBAL__N_"
# `L` marks internal linkage. No name is longer than six digits say.
_LENGTH = re.compile("L?([0-9]{1,6})")


def function_name(mangled: str) -> str:
    """Return the qualified name of an Itanium-mangled kernel, other names as they are."""
    if not mangled.startswith("_Z"):
        return mangled
    at, parts = 2, []
    nested = mangled[at : at + 1] == "N"
    if nested:
        at += 1
        while mangled[at : at + 1] in ("r", "V", "K"):
            at += 1
    while length := _LENGTH.match(mangled, at):
        at = length.end() + int(length[1])
        parts.append(mangled[length.end() : at])
        if not nested:
            break
    names = [p for p in parts if not p.startswith((_ANONYMOUS, "_INTERNAL_"))]
    return "::".join(names) or mangled
