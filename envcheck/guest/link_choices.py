"""Which copy of CUDA's and the compiler's libraries a process gets, and which others there are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from envcheck.core.linking import Choice
from envcheck.core.names import visible
from envcheck.guest.linked_files import LinkedFiles
from envcheck.guest.loader import Loaded, Process

# What NVIDIA's packages bring, the driver's library, the run time of the compilers, and PyTorch's own.
_FAMILY = re.compile(
    r"lib(?:cudart|cublas|cublasLt|cudnn\w*|cufft|cufftw|cupti|curand|cusolver|cusolverMg|cusparse"
    r"|cusparseLt|cufile|nccl|nvJitLink|nvrtc|nvrtc-builtins|nvshmem_host|nvToolsExt|cuda"
    r"|nvidia-ml|stdc\+\+|gomp|gcc_s|torch|torch_cpu|torch_cuda|torch_python|c10|c10_cuda)\.so(?:\.\d+)*"
)
_COMPILERS = ("libstdc++.so", "libgomp.so", "libgcc_s.so")
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*")
_VERSIONED = ("libc.so.6", "libstdc++.so.6", "libgomp.so.1", "libgcc_s.so.1")
_KINDS = {"libc.so.6": "GLIBC_", "libstdc++.so.6": "GLIBCXX_", "libgomp.so.1": "GOMP_",
          "libgcc_s.so.1": "GCC_"}  # fmt: skip
_MAX_OTHERS = 8


class Choices:
    """Collects the copies that processes got, each copy of each name once."""

    def __init__(self, show: Callable[[str], str], files: LinkedFiles, paths: list[str]) -> None:
        self.show, self.files = show, files
        self.by_name: dict[str, list[str]] = {}
        for path in paths:
            self.by_name.setdefault(os.path.basename(path), []).append(path)
        self._found: dict[tuple[str, str], Choice] = {}
        self._majors: dict[tuple[str, ...], None] = {}

    def add(self, process: Process, opened: str, *, torch: bool) -> None:
        """Take in what one process has mapped."""
        runtimes = {}
        for loaded in process.maps:
            soname = loaded.file.dynamic.soname or os.path.basename(loaded.path)
            # What was opened by its own path was not chosen.
            chosen = loaded.file.real != os.path.realpath(opened)
            if chosen and _FAMILY.fullmatch(soname):
                self._add(process, loaded, soname, opened, torch=torch)
            major = _RUNTIME.fullmatch(soname)
            if major:
                runtimes[major[1]] = self.show(loaded.file.real)
        if len(runtimes) > 1:
            self._majors.setdefault(tuple(sorted(runtimes.values())))

    def _add(
        self, process: Process, loaded: Loaded, name: str, opened: str, *, torch: bool
    ) -> None:
        key = (name, loaded.file.real)
        if key in self._found:
            return
        self._found[key] = Choice(
            name=visible(name),
            path=self.show(loaded.file.real),
            how=loaded.how,
            asked_by=None if loaded.loader is None else self.show(loaded.loader.file.real),
            opened=self.show(opened),
            torch=torch,
            others=tuple(self._others(process, loaded, name))[:_MAX_OTHERS],
        )

    def _others(self, process: Process, loaded: Loaded, name: str) -> Iterator[str]:
        """Yield other copies, in the environment and on the path of what asked."""
        seen = {loaded.file.identity}
        reach = (path for path, _ in process.candidates(name, loaded.loader))
        for path in (*self.by_name.get(name, ()), *reach):
            file = self.files.read(path)
            fits = file is not None and file.machine == process.system.machine
            if file is not None and fits and file.identity not in seen:
                seen.add(file.identity)
                yield self.show(file.real)

    def add_driver(self, process: Process) -> None:
        """Look for the driver's library, which the CUDA runtime opens by name."""
        caller = next(
            (m for m in process.maps if _RUNTIME.fullmatch(m.path.rpartition("/")[2])), None
        )
        trial = process.fork()
        opening = trial.open("libcuda.so.1", caller=caller)
        if opening.root is not None:
            self._add(trial, opening.root, "libcuda.so.1", "libcuda.so.1", torch=True)
        elif opening.refusal is not None:
            path = self.show(os.path.realpath(opening.refusal.path))
            self._found["libcuda.so.1", path] = Choice(
                name="libcuda.so.1",
                path=path,
                how=opening.refusal.how,
                opened="libcuda.so.1",
                torch=True,
                refused=opening.refusal.problem,
            )

    def found(self) -> Iterator[Choice]:
        """Yield the copies that were taken where there are several, NVIDIA's from elsewhere too."""
        taken: dict[str, int] = {}
        for name, _ in self._found:
            taken[name] = taken.get(name, 0) + 1
        for (name, _), choice in sorted(self._found.items()):
            outside = choice.path.startswith("/") and not name.startswith(_COMPILERS)
            if taken[name] > 1 or choice.others or outside or name.startswith("libcuda.so"):
                yield choice

    def majors(self) -> list[tuple[str, ...]]:
        """Return the copies of the CUDA runtime that one process has together."""
        return list(self._majors)


def defined(process: Process) -> dict[str, str]:
    """Return the newest version that each library of the compiler defines in a process."""
    found = {}
    for name in _VERSIONED:
        loaded = process.names.get(name)
        if loaded is None:
            trial = process.fork()
            loaded = trial.open(name).root
        versions = loaded.file.dynamic.definitions.values() if loaded is not None else ()
        own = [v for v in versions if re.fullmatch(_KINDS[name] + r"[\d.]+", v)]
        if own:
            found[name] = max(own, key=lambda v: tuple(map(int, re.findall(r"\d+", v))))
    return found
