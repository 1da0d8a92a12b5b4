"""The steps of a build, run on this machine: the same scripts that build an image."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from envcheck.engine import child, faults, pip_config, venv_folder
from envcheck.engine import recipe as recipes
from envcheck.engine.build_log import clean
from envcheck.engine.protocol import Progress, Step
from envcheck.engine.recipe import Recipe
from envcheck.engine.venv_folder import VenvFolder

_KEPT = 600
_NAMES = {
    "environment": "[environment] the locked packages",
    "toolchain": "[builder] nvcc and its parts",
    "final": "[final] the built extensions, and what it is for",
}
_EXTENSION = re.compile(r"^\[extension (?P<name>\S+)\] (?P<what>\S+)")
# Of pip's variables those pass that say how to fetch; the others change what is installed.
_HOW = ("CERT", "CLIENT_CERT", "PROXY", "TIMEOUT", "DEFAULT_TIMEOUT", "CACHE_DIR")
_WHERE = (
    *("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "TRUSTED_HOST"),
    *("CONFIG_FILE", "KEYRING_PROVIDER"),
)
_NOT_OURS = re.compile(
    r"PIP_|PYTHON|ENVCHECK_|CUDA_|TORCH_|TRITON_|VIRTUAL_ENV$|CUDACXX$|LD_PRELOAD$"
)


class VenvBuild:
    """One build into a folder that is claimed.

    `python` is the interpreter to make the venv with, `base` what is written down of it.
    """

    def __init__(
        self,
        folder: VenvFolder,
        recipe: Recipe,
        *,
        python: str,
        base: str,
        context: Path,
        log: Path,
        progress: Progress,
    ) -> None:
        self.base = base
        self.context = context
        self._folder = folder
        self._recipe = recipe
        self._python = python
        self._log = log
        self._progress = progress
        self._steps: dict[str, Step] = {}
        self._tail: deque[str] = deque(maxlen=_KEPT)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step once, in the order in which they began."""
        return tuple(replace(step, line="") for step in self._steps.values())

    def run(self) -> None:
        """Build everything; raises FileUnavailable and EnvcheckError with the cause."""
        with self._logged() as handle:
            self._environment(handle)
            self._builder(handle)
            self._finish(handle)

    def finish(self) -> None:
        """Only write down anew what it is for; raises as `run` does."""
        with self._logged() as handle:
            self._tell("environment", "cached")
            self._finish(handle)

    def reuse(self) -> None:
        """Tell that everything is here."""
        self._tell("environment", "cached")

    @contextmanager
    def _logged(self) -> Iterator[IO[str]]:
        with child.open_log(self._log) as handle:
            try:
                self._folder.remove(self._folder.temporary)
                self._folder.temporary.mkdir()
                yield handle
                self._folder.remove(self._folder.temporary)
            except OSError as error:
                raise faults.explain([str(error)], faults.VENV, str(self._log)) from None

    def _environment(self, handle: IO[str]) -> None:
        places = {"ENVCHECK_LOCK": str(self.context / "lock.txt")}
        self._step(handle, "environment", self._python, places)

    def _builder(self, handle: IO[str]) -> None:
        folder = self._folder
        if not has_builder(self._recipe):
            folder.toolchain.mkdir()
            (folder.toolchain / "extensions.json").write_text("[]\n", encoding="ascii")
            return
        # The image's stage has the lock beside the sources.
        sources = self.context / "extensions"
        sources.mkdir(exist_ok=True)
        (self.context / "builder.txt").rename(sources / "builder.txt")
        self._tell("toolchain", "running")
        venv_folder.clone(folder.environment, folder.builder)
        places = {"ENVCHECK_ENVIRONMENT": str(folder.builder)}
        places["ENVCHECK_SOURCES"] = str(sources)
        inside = str(folder.builder / "bin" / "python")
        self._step(handle, "toolchain", inside, places)
        places |= builder_variables(folder, self._recipe.torch_cuda_arch_list)
        self._step(handle, "extensions", inside, places)

    def _finish(self, handle: IO[str]) -> None:
        inside = str(self._folder.environment / "bin" / "python")
        self._step(handle, "final", inside, recipes.arguments(self._recipe, self.base))

    def _step(self, handle: IO[str], name: str, python: str, more: Mapping[str, str]) -> None:
        """Run one script of `images/steps`; raises FileUnavailable and EnvcheckError."""
        # What an earlier step said is not why this one fails.
        self._tail.clear()
        # The extensions tell of themselves, each as a step.
        if name != "extensions":
            self._tell(name, "running")
        start = time.monotonic()
        hide = pip_config.hider(self._recipe.pip_config)

        def read(line: str) -> None:
            text = hide(clean(line))
            handle.write(text + "\n")
            self._tail.append(text)
            self._hear(name, text)

        command = [python, "-I", "-B", str(self.context / "steps" / f"{name}.py")]
        code = child.stream(command, {**self._variables(), **more}, read)
        if code:
            for step in self.steps:
                if step.state == "running":
                    self._tell(step.id, "failed", seconds=time.monotonic() - start)
            if code < 0:
                self._tail.append(f"envcheck: ended by signal {-code}")
            raise faults.explain(list(self._tail), faults.VENV, str(self._log))
        if name != "extensions":
            self._tell(name, "done", seconds=time.monotonic() - start)

    def _hear(self, name: str, line: str) -> None:
        """Tell what a line is about."""
        match = _EXTENSION.match(line)
        if match is None:
            running = [s.id for s in self._steps.values() if s.state == "running"]
            if running:
                self._tell(running[-1], "running", line=line)
        elif name == "extensions":
            states = {"built": "done", "failed": "failed"}
            seconds = re.search(r"after ([\d.]+) s$", line)
            self._tell(
                f"extension {match['name']}",
                states.get(match["what"], "running"),
                seconds=float(seconds[1]) if seconds is not None else None,
            )

    def _tell(self, name: str, state: str, *, seconds: float | None = None, line: str = "") -> None:
        shown = _NAMES.get(name, f"[builder] {name}")
        step = Step(id=name, name=shown, state=state, seconds=seconds, line=line)
        self._steps[name] = step
        self._progress(step)

    def _variables(self) -> dict[str, str]:
        """Return the variables of every step."""
        folder, recipe = self._folder, self._recipe
        given = _HOW if recipe.pip_config is not None else (*_HOW, *_WHERE)
        pips = {f"PIP_{name}" for name in given}
        fetching = {k: v for k, v in os.environ.items() if k in pips}
        return (
            inherited(folder.environment)
            | fetching
            | {
                "ENVCHECK_ENVIRONMENT": str(folder.environment),
                "ENVCHECK_TOOLCHAIN": str(folder.toolchain),
                "ENVCHECK_WHEELS": str(folder.toolchain / "wheels"),
                "ENVCHECK_PIP_CONFIG": _readable(recipe.pip_config),
                "ENVCHECK_CA": _readable(recipe.ca_file),
                "SOURCE_DATE_EPOCH": str(recipe.epoch),
                # Beside the environment, where there is room for torch twice.
                "TMPDIR": str(folder.temporary),
            }
        )


def has_builder(recipe: Recipe) -> bool:
    """Say whether anything is to be compiled."""
    released = recipe.extension_lock is not None
    return recipe.builder_lock is not None or released or bool(recipe.extensions)


def inherited(environment: Path) -> dict[str, str]:
    """Return this process's variables as a job in `environment` would have them.

    Without those that make another Python, pip, CUDA or torch out of it.
    """
    kept = {k: v for k, v in os.environ.items() if _NOT_OURS.match(k) is None}
    path = [str(environment / "bin"), *filter(None, [kept.get("PATH", os.defpath)])]
    return kept | {"PATH": os.pathsep.join(path)}


def builder_variables(folder: VenvFolder, arch_list: str) -> dict[str, str]:
    """Return what the Dockerfile's stage `builder` sets."""
    path = [str(folder.cuda / "bin"), inherited(folder.builder)["PATH"]]
    return {
        "CUDA_HOME": str(folder.cuda),
        "PATH": os.pathsep.join(path),
        "TORCH_CUDA_ARCH_LIST": arch_list,
    }


def _readable(path: Path | None) -> str:
    if path is None:
        return ""
    child.require_readable(path)
    return str(path.absolute())
