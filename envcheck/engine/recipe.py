"""What is to be built: one row of `targets.toml` and what the user changed of it."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from envcheck import targets
from envcheck.errors import FileUnavailable, UsageError
from envcheck.targets import Architecture

EPOCH = 1767225600
"""SOURCE_DATE_EPOCH of every build unless said otherwise: 2026-01-01."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides what is in the built environment, and how to fetch it."""

    target: str
    sm: str
    torch_cuda_arch_list: str
    torch: str
    cuda: str
    nvidia_require_cuda: str
    base: str
    base_digest: str | None
    """Of the registry, or the id of a local image; None takes what `base` names today."""
    lock: Path
    builder_lock: Path | None
    """None builds without nvcc."""
    extensions: tuple[Path, ...] = ()
    """Source folders; the name of the folder is the name in the results."""
    extension_lock: Path | None = None
    """Released extensions that must be built here, one requirement with hashes each."""
    pip_config: Path | None = None
    ca_file: Path | None = None
    network: str | None = None
    """`host` where the index is a mirror on this machine; None for the engine's default."""
    no_cache: bool = False
    epoch: int = EPOCH

    @property
    def base_reference(self) -> str:
        """`name:tag@sha256:...`, or without the digest where none is known."""
        return self.base if self.base_digest is None else f"{self.base}@{self.base_digest}"


def of_architecture(architecture: Architecture) -> Recipe:
    """Return the recipe of a row; raises UsageError for one that cannot be built.

    What a user wants otherwise is put in with `dataclasses.replace`; a base of their own
    comes with its own digest, or with None.
    """
    row = architecture.image
    if row is None:
        known = [a.name for a in targets.catalogue().architectures if a.image is not None]
        message = f"{architecture.name}: no image is defined for this architecture"
        raise UsageError(message, remedy=f"--arch {' or '.join(known)}")
    folder = targets.data_file().parent
    return Recipe(
        target=architecture.name,
        sm=architecture.sm,
        torch_cuda_arch_list=row.torch_cuda_arch_list,
        torch=row.torch,
        cuda=row.cuda,
        nvidia_require_cuda=row.nvidia_require_cuda,
        base=row.base,
        base_digest=row.base_digest,
        lock=folder / row.lock,
        builder_lock=folder / row.builder_lock,
    )


def stage_context(recipe: Recipe, folder: Path) -> Path:
    """Copy what the Dockerfile reads into `folder`, and nothing else; returns the Dockerfile.

    Names are the same for every target, so that equal locks share their layers.
    """
    images = targets.data_file().parent
    shutil.copytree(images / "steps", folder / "steps", ignore=_no_caches)
    _copy(recipe.lock, folder / "lock.txt", "lock")
    if recipe.builder_lock is None:
        (folder / "builder.txt").write_bytes(b"")
    else:
        _copy(recipe.builder_lock, folder / "builder.txt", "lock")
    if recipe.extensions or recipe.extension_lock is not None:
        (folder / "extensions").mkdir()
    for source in recipe.extensions:
        copy = folder / "extensions" / source.name
        if not source.is_dir() or copy.exists() or not re.fullmatch(r"[\w.-]+", source.name):
            reason = "no folder, or its name is not plain, or taken by another"
            message = f"{source}: cannot be built as an extension: {reason}"
            raise FileUnavailable(message, remedy="name each extension's source folder once")
        shutil.copytree(source, copy, ignore=_no_caches, symlinks=True)
    if recipe.extension_lock is not None:
        _copy(recipe.extension_lock, folder / "extensions" / "extensions.lock", "lock")
    return Path(shutil.copy(images / "Dockerfile", folder / "Dockerfile"))


def arguments(recipe: Recipe, base: str) -> dict[str, str]:
    """Return the build arguments of the Dockerfile."""
    return {
        "BASE": base,
        "LOCK": "lock.txt",
        "BUILDER_LOCK": "builder.txt",
        "TARGET": recipe.target,
        "SM": recipe.sm,
        "TORCH": recipe.torch,
        "CUDA": recipe.cuda,
        "TORCH_CUDA_ARCH_LIST": recipe.torch_cuda_arch_list,
        "NVIDIA_REQUIRE_CUDA": recipe.nvidia_require_cuda,
        "SOURCE_DATE_EPOCH": str(recipe.epoch),
    }


_no_caches = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", "*.egg-info", "build", "dist")


def _copy(path: Path, target: Path, what: str) -> None:
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        message = f"{path}: {what} cannot be read: {error.strerror}"
        raise FileUnavailable(message, remedy="name a file that is there") from None
