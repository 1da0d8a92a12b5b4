"""Which files of an inventory the verdict may rest on, and why the others may not decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envcheck.core import coverage, selection
from envcheck.core.cuda import Version
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import Inventory
from envcheck.core.sm import Sm

_LOOSE = ("cubin", "fatbin", "ptx")


@dataclass(frozen=True, slots=True)
class Role:
    """What one file is to its package on one card."""

    required: bool
    loaded: bool
    """False when the package would not load the file there."""
    why: str
    """Why it does not decide; empty when it does."""
    alternative: bool = False
    """True for one of several variants of which it is not known which one is loaded."""


_DECIDES = Role(required=True, loaded=True, why="")


def roles(inventory: Inventory, sm: Sm, driver: Version | None) -> dict[str, Role]:
    """Return the role of every file with device code, by path."""
    environment = inventory.environment
    torch = environment.torch if environment is not None else None
    variables = (environment.variables if environment is not None else None) or {}
    files = [f for f in inventory.files if f.skipped is None and f.problem is None]
    picked = selection.choices(
        (f.path for f in files), sm, torch.cuda if torch is not None else None, variables
    )
    covered = {f.path: coverage.of_file(f, sm, driver).mode != coverage.NONE for f in files}
    return {f.path: _role(f, inventory, picked.get(f.path), picked, covered) for f in files}


def _role(
    file: DeviceFile,
    inventory: Inventory,
    choice: selection.Choice | None,
    picked: Mapping[str, selection.Choice],
    covered: Mapping[str, bool],
) -> Role:
    if choice is not None and choice.loaded is False:
        return Role(required=False, loaded=False, why=choice.why)
    if choice is not None and choice.loaded is None:
        folder = file.path.rpartition("/")[0]
        group = [p for p in picked if p.rpartition("/")[0] == folder]
        if not covered[file.path] and any(covered[p] for p in group):
            return Role(required=False, loaded=True, why=choice.why, alternative=True)
        return Role(required=True, loaded=True, why="", alternative=True)
    if file.format in _LOOSE and (
        inventory.source == "environment" or (".whl!/" in file.path and not covered[file.path])
    ):
        why = "one of a set of loose kernels, of which its package picks by SM"
        return Role(required=False, loaded=False, why=why)
    if not covered[file.path] and _optional(file, inventory, covered):
        why = "an optional part of its package, for other cards"
        return Role(required=False, loaded=True, why=why)
    return _DECIDES


def _optional(file: DeviceFile, inventory: Inventory, covered: Mapping[str, bool]) -> bool:
    """Say whether a file is a package's extra for other cards than this one.

    That is a part known to be built for newer cards alone, or code for single SMs or families
    only beside a file of the same package that does run. It holds inside an installed package
    or a wheel: files that stand alone always decide.
    """
    if inventory.source != "environment" and ".whl!/" not in file.path:
        return False
    if selection.is_optional(file.path):
        return True
    held = (*coverage.codes(file, "sass"), *coverage.codes(file, "ptx"))
    package = _package(file.path)
    special = bool(held) and all(s.suffix for s in held)
    return special and any(ok and _package(path) == package for path, ok in covered.items())


def _package(path: str) -> str:
    """Return the archive and the first folder of a path: what one import name is."""
    archive, mark, member = path.rpartition("!/")
    return f"{archive}{mark}{member.partition('/')[0]}"
