"""What is to be built: one row of `targets.toml` and what the user changed of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from envcheck import targets
from envcheck.core.cuda import FIRST_CUDA, parse_version
from envcheck.engine import content_digest, lockfile
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
    extensions: Mapping[str, Path] = field(default_factory=dict)
    """What is imported -> its source folder; the results speak of the first."""
    extension_lock: Path | None = None
    """Released extensions that must be built here, one requirement with hashes each."""
    kernels: str = ""
    """`sha256:...` over the kernels that it is verified with; empty for none."""
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
        raise UsageError(message, remedy=f"--arch {known[-1]} (there are {', '.join(known)})")
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


def with_lock(recipe: Recipe, lock: Path, builder_lock: Path | None = None) -> Recipe:
    """Return the recipe of a row with another lock, labelled with what that lock pins.

    The row's compiler stays only where torch and CUDA are those of the row; otherwise
    `builder_lock` brings one, or there is none. Raises FileUnavailable and UsageError that
    name the file and line of a lock which will not do.
    """
    pins = lockfile.read(lock)
    torch, cuda = lockfile.torch(lock, pins), lockfile.cuda(lock, pins)
    if builder_lock is not None:
        lockfile.read(builder_lock)
    elif (torch, cuda) == (recipe.torch, recipe.cuda):
        builder_lock = recipe.builder_lock
    return replace(
        recipe,
        lock=lock,
        builder_lock=builder_lock,
        torch=torch,
        cuda=cuda,
        nvidia_require_cuda=_required(cuda, recipe.sm),
    )


def _required(cuda: str, sm: str) -> str:
    """Return NVIDIA_REQUIRE_CUDA, the least CUDA that the driver must support.

    Within a major version an older driver serves a newer runtime, if it knows the card.
    """
    major, minor = max((parse_version(cuda)[0], 0), FIRST_CUDA.get(sm, (0, 0)))
    return f"cuda>={major}.{minor}"


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
    for name, source in sorted(recipe.extensions.items()):
        if not all(part.isidentifier() for part in name.split(".")):
            message = f"extension {name!r}: is not a name that can be imported"
            raise UsageError(message, remedy="name what a job imports, such as my_ops")
        try:
            shutil.copytree(source, folder / "extensions" / name, ignore=_no_caches, symlinks=True)
        except (shutil.Error, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            message = f"{source}: cannot be built as extension {name}: {reason}"
            raise FileUnavailable(message, remedy="name the folder of its sources") from None
    if recipe.extension_lock is not None:
        _copy(recipe.extension_lock, folder / "extensions" / "extensions.lock", "lock")
    return Path(shutil.copy(images / "Dockerfile", folder / "Dockerfile"))


def digest(recipe: Recipe, context: Path, base: str) -> str:
    """Return `sha256:...` over the arguments of a build and all that its steps read.

    `context` is what `stage_context` made; the names of the user's files do not count.
    """
    said = json.dumps(arguments(recipe, base), sort_keys=True)
    staged = content_digest.of_folder(str(context)).digest
    return f"sha256:{hashlib.sha256(f'{said}{staged}'.encode()).hexdigest()}"


def arguments(recipe: Recipe, base: str) -> dict[str, str]:
    """Return the build arguments of the Dockerfile."""
    return {
        "BASE": base,
        "KERNELS": recipe.kernels,
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
