"""Whose content a path has that several packages own, and who misses his."""

from __future__ import annotations

from envcheck.checks import commands, pins
from envcheck.core.installed import Installed, Overlap


def losers(overlap: Overlap) -> tuple[str, ...]:
    """Return the owners none of whose differing files is on disk, though another's are."""
    if not overlap.held:
        return ()
    return tuple(owner for owner in overlap.owners if owner not in overlap.held)


def name(owner: str) -> str:
    """Return the name of `onnxruntime 1.20.1`."""
    return owner.partition(" ")[0]


def needed(installed: Installed, package: str) -> tuple[str, ...]:
    """Return the installed packages that require one."""
    return tuple(sorted({pin.package.name for pin in pins.pins(installed) if pin.name == package}))


def decides(paths: str, needers: set[str] | list[str]) -> bool:
    """Say whether those who need a package that lost its files cannot do with what is there.

    Of NVIDIA's libraries that is certain for PyTorch, which is linked against them release by
    release; xgboost takes the NCCL that it finds.
    """
    return "torch" in needers if paths.startswith("nvidia/") else bool(needers)


def reinstall(keep: tuple[str, ...], drop: tuple[str, ...]) -> str:
    """Return the commands that leave one owner of the files, in its release, with its own content."""
    kept = "; ".join(commands.again_as(name(owner), owner.partition(" ")[2]) for owner in keep)
    return f"pip uninstall -y {' '.join(map(name, drop))}; {kept}"
