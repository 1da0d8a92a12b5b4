"""What the guest is asked to compile and to run on a card, for a target."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envcheck import catalog, targets
from envcheck.config import Config, Extension
from envcheck.core.kernels import Kernel
from envcheck.core.model import Target
from envcheck.core.request import PARTS, CompileRequest, ExecuteRequest, Request, Sizes, SmokeCall

BUDGET = 60.0
"""Seconds, where nobody says how many: what a rental's first minute costs."""
_MAX_PARALLEL = 8
"""Of compiles at a time: each takes half a gigabyte, and threads for every processor."""
Seen = Callable[[str, Path], str]
"""Where the guest sees a folder that it is given under a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be run on a card of the target, and what is compiled for it meanwhile."""

    target: Target
    parts: tuple[str, ...] = PARTS
    budget: float = BUDGET
    seed: int = 1
    kernels: tuple[Kernel, ...]
    kernel_folders: tuple[Path, ...]
    extensions: tuple[Extension, ...] = ()
    sizes: tuple[Sizes, ...] = ()
    gpus: str = "all"
    """Those of the container, as docker's --gpus names them."""
    rate: float = 0.0
    """Seconds for measuring how fast the card multiplies; 0 for not at all."""
    exchange: bool = False
    """Whether several cards are to exchange data."""

    def stage(self, folder: Path) -> dict[str, Path]:
        """Copy what the guest reads into a folder; returns the folders by the guest's names."""
        kernels, smokes = folder / "kernels", folder / "smokes"
        catalog.stage(self.kernel_folders, kernels)
        smokes.mkdir()
        for number, file in self._files():
            own = smokes / str(number)  # two may have one name
            own.mkdir()
            shutil.copyfile(file, own / file.name)
            (own / file.name).chmod(0o644)  # for whoever the user of an image is
            own.chmod(0o755)
        smokes.chmod(0o755)
        return {"kernels": kernels, "smokes": smokes}

    def request(self, folders: dict[str, Path], seen: Seen, *, cache: str, read: bool) -> Request:
        """Return the whole request: look, ask the driver, compile, and run."""
        return Request(
            read=read,
            cards=True,
            compile=self._compile(seen("kernels", folders["kernels"]), cache),
            execute=self.execute(folders, seen, cache=cache),
        )

    def execute(self, folders: dict[str, Path], seen: Seen, *, cache: str) -> ExecuteRequest:
        """Return what is to be run on the card."""
        return ExecuteRequest(
            parts=self.parts,
            budget=self.budget,
            seed=self.seed,
            sizes=self.sizes,
            root=seen("kernels", folders["kernels"]),
            kernels=self._wanted(),
            cache=cache,
            arch_list=arch_list(self.target),
            smokes=tuple(self._smokes(seen("smokes", folders["smokes"]))),
            rate=float(self.rate),
            exchange=self.exchange,
        )

    def _compile(self, root: str, cache: str) -> CompileRequest:
        return CompileRequest(
            target=self.target.sm,
            arch_list=arch_list(self.target),
            root=root,
            kernels=self._wanted(),
            imports=tuple(e.name for e in self.extensions),
            cache=cache,
            parallel=parallel(),
        )

    def _wanted(self) -> tuple[Kernel, ...]:
        return tuple(k for k in self.kernels if k.kind in self.parts)

    def _files(self) -> Iterable[tuple[int, Path]]:
        """Yield the files that hold functions of the user's, each with its number."""
        for number, extension in enumerate(self.extensions):
            place, _, _ = (extension.smoke or "").rpartition(":")
            if place.endswith(".py"):
                yield number, Path(place)

    def _smokes(self, folder: str) -> Iterable[SmokeCall]:
        files = {number: f"{folder}/{number}/{file.name}" for number, file in self._files()}
        for number, extension in enumerate(self.extensions):
            place, _, function = (extension.smoke or "").rpartition(":")
            if function:
                place = files.get(number, place)
                yield SmokeCall(module=extension.name, place=place, function=function)


def of_settings(settings: Config, target: Target, **more: Any) -> Wish:
    """Return the wish for a target with the kernels, extensions and sizes of some settings."""
    folders = (catalog.shipped(), *settings.kernels)
    return Wish(
        target=target,
        kernels=catalog.load_all(folders),
        kernel_folders=folders,
        extensions=settings.extensions,
        sizes=settings.sizes,
        **more,
    )


def arch_list(target: Target) -> str:
    """Return TORCH_CUDA_ARCH_LIST for a target: that of its image, or its SM alone."""
    row = targets.architecture(target.sm)
    if row is not None and row.image is not None:
        return row.image.torch_cuda_arch_list
    number = int(target.sm.removeprefix("sm_"))
    return f"{number // 10}.{number % 10}"


def parallel() -> int:
    """Return how many compiles may run at a time on this machine."""
    return min(_MAX_PARALLEL, len(os.sched_getaffinity(0)))
