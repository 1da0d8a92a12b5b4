"""Readable kernel names: `_ZN6marlin6MarlinILi1E...` is `marlin::Marlin`.

Template arguments are dropped on purpose: a library that dispatches by architecture
instantiates one template with other arguments per architecture, so the function, not the
instance, is what must exist for a card.
"""

from __future__ import annotations

_ANONYMOUS = "_GLOBAL__N_"


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
    while True:
        if mangled[at : at + 1] == "L":  # internal linkage
            at += 1
        digits = at
        while mangled[digits : digits + 1].isdigit():
            digits += 1
        if digits == at:
            break
        end = digits + int(mangled[at:digits])
        parts.append(mangled[digits:end])
        at = end
        if not nested:
            break
    names = [p for p in parts if not p.startswith((_ANONYMOUS, "_INTERNAL_"))]
    return "::".join(names) or mangled
