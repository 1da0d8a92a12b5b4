"""Every CUDA C++ kernel, built as a PyTorch extension for one target without a GPU.

One child process imports torch and never touches CUDA, and forks one for each kernel, which
builds it with `torch.utils.cpp_extension`, loads the library and so resolves its symbols.
Then the library's own bytes say what it holds. What was built stays in the cache, in a folder
whose name says everything that ninja does not compare: the second time it has nothing to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib
import os
import re
import shutil
import sys
import sysconfig
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from envcheck.core import codec
from envcheck.core.compiled import CudaKernel, CudaKernels, Outcome
from envcheck.core.device_file import DeviceFile
from envcheck.core.kernels import Kernel
from envcheck.core.request import CompileRequest
from envcheck.core.sm import Sm
from envcheck.guest import trial, words
from envcheck.guest.inflate import inflate
from envcheck.guest.reading import read_place

_IMPORT_SECONDS = 180
_ASK_SECONDS = 30
_RELEASE = re.compile(r"release (\d+\.\d+)")
# What ninja says around what the compilers say: progress with the command, and its own words.
_WRAPPER = re.compile(r"\[\d+/\d+\] |ninja: |FAILED: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Toolchain:
    """What the environment builds extensions with, and why it cannot; all of it facts."""

    torch: str
    nvcc: str | None = None
    missing: str | None = None


class BuildFailed(Exception):
    """A build that failed; its text is what the compilers said."""


def build(request: CompileRequest) -> CudaKernels:
    """Build all CUDA kernels of the request, in children of this process."""
    result = trial.run(partial(_build_all, request), deadline=patience(request))
    if not isinstance(result.value, dict):
        message = words.reason(result.outcome)
        return CudaKernels(torch=None, nvcc=None, outcome=result.outcome, message=message)
    facts = result.value
    quiet = replace(result.outcome, stdout=(), stderr=())
    if facts["missing"] is not None:
        quiet = replace(quiet, status="not-applicable", error=facts["missing"])
    return CudaKernels(
        torch=facts["torch"],
        nvcc=facts["nvcc"],
        outcome=quiet,
        message=facts["missing"] or "",
        kernels=tuple(codec.from_json(CudaKernel, k, "kernel") for k in facts["kernels"]),
    )


def patience(request: CompileRequest) -> int:
    """Return the seconds after which even the process that watches over the builds is given up."""
    return _IMPORT_SECONDS + _ASK_SECONDS + len(_of_cuda(request)) * request.build_deadline


def arch_list(request: CompileRequest) -> str:
    """Return what torch is to build for: what was asked for, or the target alone."""
    sm = Sm.parse(request.target)
    return request.arch_list or f"{sm.number // 10}.{sm.number % 10}{sm.suffix}"


def _of_cuda(request: CompileRequest) -> tuple[Kernel, ...]:
    return tuple(k for k in request.kernels if k.kind == "cuda")


def _build_all(request: CompileRequest) -> dict[str, Any]:
    """Import torch and fork; runs in a child, because importing it may be all it takes."""
    sys.dont_write_bytecode = True
    # As activating the environment would: ninja may be a script of it.
    os.environ["PATH"] = os.pathsep.join((sysconfig.get_path("scripts"), _path()))
    os.environ["TORCH_CUDA_ARCH_LIST"] = arch_list(request)
    # torch counts cards when it looks for nvcc; this way it does not even ask the driver.
    os.environ.update(CUDA_VISIBLE_DEVICES="", PYTORCH_NVML_BASED_CUDA_CHECK="1")
    tools = _toolchain()
    facts: dict[str, Any] = {"torch": tools.torch, "nvcc": tools.nvcc, "missing": tools.missing}
    if tools.missing is not None:
        return {**facts, "kernels": []}
    target = Sm.parse(request.target)
    wanted = [k for k in _of_cuda(request) if _least(k) <= target]
    processors = request.parallel or len(os.sched_getaffinity(0))
    parallel = min(processors, max(len(wanted), 1))
    os.environ["MAX_JOBS"] = str(processors // parallel)
    folders = [_folder(k, request, tools) for k in wanted]
    trials = trial.run_all(
        [partial(_build, k, request.root, f) for k, f in zip(wanted, folders, strict=True)],
        deadline=request.build_deadline,
        parallel=parallel,
        memory=request.memory,
    )
    done = [
        _result(kernel, request, folder, ended.outcome)
        for kernel, folder, ended in zip(wanted, folders, trials, strict=True)
    ]
    done += [_unfit(k, request) for k in _of_cuda(request) if k not in wanted]
    return {**facts, "kernels": codec.to_json(done)}


def _path() -> str:
    return os.environ.get("PATH") or os.defpath


def _toolchain() -> _Toolchain:
    """Import torch and look for what its extensions are built with; raises what importing does."""
    import torch

    tools = _Toolchain(torch=torch.__version__)
    if torch.version.cuda is None:
        return replace(tools, missing=f"torch {tools.torch} is built without CUDA")
    try:
        builder = importlib.import_module("torch.utils.cpp_extension")
    except ImportError as error:  # it needs setuptools, which nothing at run time needs
        return replace(tools, missing=f"no torch.utils.cpp_extension: {error}")
    if not builder.CUDA_HOME:
        return replace(tools, missing="no nvcc: neither CUDA_HOME nor the PATH leads to it")
    nvcc = os.path.join(builder.CUDA_HOME, "bin", "nvcc")
    if not os.access(nvcc, os.X_OK):
        return replace(tools, missing=f"no nvcc in {builder.CUDA_HOME}")
    said = trial.run(trial.program([nvcc, "--version"]), deadline=_ASK_SECONDS).outcome
    match = _RELEASE.search("\n".join(said.stdout))
    tools = replace(tools, nvcc=match[1] if match is not None else "unknown")
    for program in (os.environ.get("CXX", "").strip() or "c++", "ninja"):
        if shutil.which(program.split()[0]) is None:
            return replace(tools, missing=f"no {program} on the PATH")
    return tools


def _least(kernel: Kernel) -> Sm:
    """Return the least SM that has the instructions for any dtype of a kernel."""
    return min(Sm.parse(d.min_sm) for d in kernel.dtypes.values())


def _folder(kernel: Kernel, request: CompileRequest, tools: _Toolchain) -> str:
    """Return where a kernel is built: ninja compares times and commands, not contents."""
    return _place(kernel, request.cache, arch_list(request), tools.torch, f"{tools.nvcc}")


def _place(kernel: Kernel, cache: str, archs: str, torch: str, nvcc: str) -> str:
    digest = kernel.digest.partition(":")[2][:16]
    facts = (archs, f"torch{torch}", f"cuda{nvcc}", digest)
    name = re.sub(r"[^\w.+*-]", "-", "-".join((kernel.name, *facts)))
    return os.path.join(cache, "cuda", name)


def pattern(kernel: Kernel, cache: str, archs: str, torch: str) -> str:
    """Return what matches the libraries of a kernel that were built for this torch."""
    folder = _place(kernel, glob.escape(cache), archs, torch, "*")
    return os.path.join(folder, f"{_name(kernel)}.so")


def _name(kernel: Kernel) -> str:
    return f"envcheck_{kernel.name}"


def _build(kernel: Kernel, root: str, folder: str) -> None:
    """Build and load one kernel; runs in a child of the process that imported torch."""
    builder = importlib.import_module("torch.utils.cpp_extension")
    os.makedirs(folder, exist_ok=True)
    # Held until this process ends, however it does.
    owner = os.open(f"{folder}.owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.flock(owner, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, "lock"))  # torch before 2.14 waits for it for ever
    sources = [os.path.join(root, kernel.name, name) for name in kernel.sources]
    try:
        builder.load(
            name=_name(kernel), sources=sources, build_directory=folder, is_python_module=False
        )
    except RuntimeError as error:
        raise BuildFailed(_cause(str(error))) from None
    except OSError as error:
        # Newer torch says only which library could not be loaded.
        message = str(error.__cause__ or error).replace(os.path.join(folder, ""), "")
        raise BuildFailed(message) from None


def _cause(text: str) -> str:
    """Return what the compilers said, without ninja's words and the long commands."""
    first, *lines = text.splitlines() or [""]
    if not first.startswith("Error building extension"):
        return " ".join(text.split())  # torch refuses, in a paragraph
    said, before = [], first
    for line in lines:
        # The line after ninja's FAILED is the command.
        if not before.startswith("FAILED: ") and not _WRAPPER.match(line):
            said.append(line)
        before = line
    return "\n".join(said) or first


def _result(kernel: Kernel, request: CompileRequest, folder: str, outcome: Outcome) -> CudaKernel:
    """Put together what is known of one build, and read the library that it left."""
    built = None
    if outcome.ok:
        outcome = replace(outcome, stdout=(), stderr=())
        library = f"{_name(kernel)}.so"
        built = read_place(os.path.join(folder, library), f"{kernel.name}/{library}", inflate)
    return _kernel(kernel, request, outcome, built)


def _unfit(kernel: Kernel, request: CompileRequest) -> CudaKernel:
    outcome = Outcome(status="not-applicable", error=f"{kernel.name} needs {_least(kernel)}")
    return _kernel(kernel, request, outcome, None)


def _kernel(
    kernel: Kernel, request: CompileRequest, outcome: Outcome, built: DeviceFile | None
) -> CudaKernel:
    # What the compilers said starts lines of its own.
    said = (outcome.error or "").removeprefix(f"{BuildFailed.__name__}: ") or None
    return CudaKernel(
        kernel=kernel.name,
        asked=arch_list(request),
        outcome=outcome,
        message=words.reason(replace(outcome, error=said)),
        file=built,
    )
