"""A venv on this machine: the same locks and steps as an image, without an engine."""

from __future__ import annotations

import json
import os
import platform
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from envcheck.core.request import Request
from envcheck.core.variables import HIDDEN
from envcheck.engine import content_digest, local, named_python, venv_build
from envcheck.engine import recipe as recipes
from envcheck.engine.content_digest import Content, Read
from envcheck.engine.protocol import Answer, Built, ImageFacts, Limits, Progress
from envcheck.engine.recipe import Recipe
from envcheck.engine.venv_build import VenvBuild
from envcheck.engine.venv_folder import VenvFolder
from envcheck.errors import EnvcheckError, FileUnavailable

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LABELS = {
    "envcheck.target": "target",
    "envcheck.sm": "sm",
    "envcheck.torch": "torch",
    "envcheck.cuda": "cuda",
    "org.opencontainers.image.base.name": "base",
}


class Venv:
    """Builds into one folder; references are the folders of venvs, its own or any other."""

    name = "venv"

    def __init__(self, folder: Path, python: str | None = None) -> None:
        self._folder = VenvFolder(folder)
        self._python = python

    @property
    def environment(self) -> str:
        """The folder of the environment, which is its reference."""
        return str(self._folder.environment)

    @property
    def toolchain(self) -> str:
        """The folder of `extensions.json` and, in `cuda`, of nvcc."""
        return str(self._folder.toolchain)

    @property
    def scratch(self) -> str:
        """The folder that is there while a guest runs, and empty when it begins."""
        return str(self._folder.scratch)

    def seen(self, name: str, path: Path) -> str:  # noqa: ARG002 - nothing is mounted anywhere
        """Return the path itself."""
        return str(path.absolute())

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def build(
        self, recipe: Recipe, *, log: Path, progress: Progress, stage: str = "final"
    ) -> Built:
        """Build both stages, unless they are here already; returns the one that was asked for.

        Raises FileUnavailable and EnvcheckError with the cause; nothing half-built is left.
        """
        start = time.monotonic()
        python, version = local.base_interpreter(self._python)
        folder = self._folder
        builder = venv_build.has_builder(recipe)
        with tempfile.TemporaryDirectory(prefix="envcheck-") as staged, folder.claimed():
            recipes.stage_context(recipe, Path(staged))
            build = VenvBuild(
                folder,
                recipe,
                python=python,
                base=f"{python} {version}",
                context=Path(staged),
                log=log,
                progress=progress,
            )
            self._bring_about(build, recipe, builder=builder)
        wanted = folder.builder if stage == "builder" and builder else folder.environment
        return Built(
            reference=str(wanted),
            seconds=time.monotonic() - start,
            steps=build.steps,
            log=log,
            # Its content holds paths: it repeats in the same folder, which an image's does not ask.
            repeatable=False,
        )

    def _bring_about(self, build: VenvBuild, recipe: Recipe, *, builder: bool) -> None:
        """Do what of a build is not done yet; when it fails, nothing of it stays."""
        folder = self._folder
        # The kernels are only written down in it, by the last step.
        digest = recipes.digest(replace(recipe, kernels=""), build.context, build.base)
        kernels = None if recipe.no_cache else folder.made_of(digest, builder=builder)
        if kernels == recipe.kernels:
            build.reuse()
            return
        try:
            if kernels is None:
                folder.clear()
                build.run()
            else:
                folder.forget()
                build.finish()
            folder.record(digest, recipe.kernels)
        except BaseException:
            folder.clear()
            raise

    def inspect(self, reference: str, *, progress: Progress | None = None) -> ImageFacts:  # noqa: ARG002 - nothing is fetched
        """Describe a venv; raises FileUnavailable where there is none."""
        if not Path(reference, "bin", "python").exists():
            message = f"{reference}: is no environment: it has no bin/python"
            raise FileUnavailable(message, remedy="name the folder of a venv")
        target = self._target(reference)
        machine = platform.machine()
        names = ("torch_cuda_arch_list", "nvidia_require_cuda")
        return ImageFacts(
            id=reference,
            digests=(),
            architecture=_ARCHITECTURES.get(machine, machine),
            os="linux",
            size=_size(reference),
            user=str(os.geteuid()),
            variables={name.upper(): target[name] for name in names if name in target},
            labels={label: target[key] for label, key in _LABELS.items() if key in target},
            layers=(),
        )

    def run_guest(
        self,
        reference: str,
        request: Request,
        *,
        limits: Limits,
        python: str | None = None,
        folders: Mapping[str, Path] | None = None,  # noqa: ARG002 - seen where they are
    ) -> Answer:
        """Run the guest with the environment's Python; of `limits`, the time is kept.

        In the built environments it has the variables that the image's stages have.
        """
        folder = self._folder
        variables = venv_build.inherited(Path(reference))
        arch_list = self._target(str(folder.environment)).get("torch_cuda_arch_list", "")
        if reference == str(folder.builder):
            variables |= venv_build.builder_variables(folder, arch_list)
        elif reference == str(folder.environment):
            variables["TORCH_CUDA_ARCH_LIST"] = arch_list
        variables |= {"TMPDIR": str(folder.scratch)}
        if limits.gpus is None:
            # As in a container: a card is not the guest's business.
            variables |= {"CUDA_VISIBLE_DEVICES": "", HIDDEN: "1"}
        interpreter = python or named_python.resolve(reference)
        with folder.with_scratch():
            return local.run_guest(
                interpreter, request, seconds=limits.seconds, variables=variables
            )

    def content(self, reference: str, *, read: Read | None = None) -> Content:
        """Read every entry of a venv for its content digest."""
        try:
            return content_digest.of_folder(reference, read)
        except OSError as error:
            message = (
                f"{os.fsdecode(error.filename or reference)}: cannot be read: {error.strerror}"
            )
            raise FileUnavailable(message, remedy="name the folder of a venv") from None

    def read_file(self, reference: str, path: str, *, limit: int = 16 << 20) -> bytes:
        """Return one regular file; a relative path begins in the venv."""
        place = Path(reference, path)
        try:
            with place.open("rb") as handle:
                data = handle.read(limit + 1) if place.is_file() else None
        except OSError as error:
            message = f"{place}: cannot be read: {error.strerror}"
            raise FileUnavailable(message, remedy="is this the folder that was meant?") from None
        if data is None or len(data) > limit:
            what = "is not a regular file" if data is None else f"has more than {limit} bytes"
            message = f"{place}: {what}"
            raise EnvcheckError(message)
        return data

    def _target(self, reference: str) -> dict[str, str]:
        """Return what a built environment is for; empty for another."""
        try:
            found = json.loads(Path(reference, "target.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _size(folder: str) -> int:
    """Return the bytes of all files below a folder; raises FileUnavailable."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(where, name))
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total
