"""From an architecture and the user's settings to what is to be built and verified."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from envcheck import catalog, targets
from envcheck.config import Config, Extension
from envcheck.core.kernels import Kernel
from envcheck.core.model import Target
from envcheck.engine import locking
from envcheck.engine import recipe as recipes
from envcheck.engine.recipe import Recipe
from envcheck.errors import DocumentInvalid, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One environment to build for one target, and what is to be tried in it."""

    target: Target
    recipe: Recipe
    kernels: tuple[Kernel, ...]
    kernel_folders: tuple[Path, ...]
    """Those that hold the kernels' folders."""
    extensions: tuple[Extension, ...]


def plan(target: Target, settings: Config, work: Path) -> Plan:
    """Work out what to build; `work` takes what must be written for it.

    Raises UsageError for a target that has no image, and what reading kernels and locks raises.
    """
    row = targets.architecture(target.sm)
    if row is None:
        known = [a.name for a in targets.catalogue().architectures if a.image is not None]
        message = f"{target.name}: no image is defined for {target.sm}"
        raise UsageError(message, remedy=f"--arch {known[-1]} (there are {', '.join(known)})")
    folders = (catalog.shipped(), *settings.kernels)
    try:
        kernels = catalog.load_all(folders)
    except DocumentInvalid as error:
        raise UsageError(error.message, remedy="correct that kernel.toml") from None
    recipe = _with_lock(recipes.of_architecture(row), settings)
    if settings.base_name is not None:
        recipe = replace(recipe, base=settings.base_name, base_digest=settings.base_digest)
    recipe = replace(
        recipe,
        extensions={e.name: e.source for e in settings.extensions if e.source is not None},
        extension_lock=_extension_lock(settings, work),
        kernels=digest(kernels),
        pip_config=settings.pip_config,
        ca_file=settings.ca_file,
        network=settings.network,
    )
    return Plan(
        target=target,
        recipe=recipe,
        kernels=kernels,
        kernel_folders=folders,
        extensions=settings.extensions,
    )


def digest(kernels: tuple[Kernel, ...]) -> str:
    """Return `sha256:...` over names and digests of kernels."""
    lines = sorted(f"{kernel.name} {kernel.digest}\n" for kernel in kernels)
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def _with_lock(recipe: Recipe, settings: Config) -> Recipe:
    lock = settings.lock
    if settings.requirements is not None:
        lock = locking.lock(
            settings.requirements,
            torch=recipe.torch,
            pip_config=settings.pip_config,
            ca_file=settings.ca_file,
        )
    if lock is not None:
        return recipes.with_lock(recipe, lock, settings.builder_lock)
    if settings.builder_lock is not None:
        return replace(recipe, builder_lock=settings.builder_lock)
    return recipe


def _extension_lock(settings: Config, work: Path) -> Path | None:
    wanted = [e.requirement for e in settings.extensions if e.requirement is not None]
    if not wanted:
        return None
    lock = work / "extensions.lock"
    locking.lock_extensions(wanted, lock, pip_config=settings.pip_config, ca_file=settings.ca_file)
    return lock
