"""pip commands that bring back what is missing or damaged, in the release that is needed."""

from __future__ import annotations

import re
import shlex

from envcheck.checks import pins
from envcheck.checks.check import Question
from envcheck.core.installed import Package

INDEX = "https://download.pytorch.org/whl"
ON_INDEX = frozenset({"torch", "torchaudio", "torchcodec", "torchvision", "triton", "xformers"})
"""What has a build for each CUDA there, which PyPI does not take."""
_LABEL = re.compile(r"cpu|cu[0-9]{2,3}")
_TOOLKIT = "cuda-toolkit"

# How a library's name begins -> the wheel that brings it, and the extra of cuda-toolkit that asks
# for that wheel. Source: the RECORDs of what torch 2.14.1 requires, and cuda-toolkit's METADATA. The
# wheels of CUDA 12 have the same names with `-cu12`.
_WHEELS = {
    "libcublas": ("nvidia-cublas", "cublas"),
    "libcudart": ("nvidia-cuda-runtime", "cudart"),
    "libcudnn": ("nvidia-cudnn", ""),
    "libcufft": ("nvidia-cufft", "cufft"),
    "libcufile": ("nvidia-cufile", "cufile"),
    "libcupti": ("nvidia-cuda-cupti", "cupti"),
    "libcurand": ("nvidia-curand", "curand"),
    "libcusolver": ("nvidia-cusolver", "cusolver"),
    "libcusparseLt": ("nvidia-cusparselt", ""),
    "libcusparse": ("nvidia-cusparse", "cusparse"),
    "libnccl": ("nvidia-nccl", ""),
    "libnvJitLink": ("nvidia-nvjitlink", "nvjitlink"),
    "libnvrtc": ("nvidia-cuda-nvrtc", "nvrtc"),
    "libnvshmem": ("nvidia-nvshmem", ""),
    "libnvToolsExt": ("nvidia-nvtx", "nvtx"),
}


def again(name: str, question: Question) -> str:
    """Return the command that installs a distribution again, in the release that is there."""
    package = _installed(name, question)
    environment = question.inventory.environment
    every = environment.distributions if environment is not None else ()
    versions = (
        [package.version] if package is not None else [d.version for d in every if d.name == name]
    )
    return again_as(name, versions[0]) if versions else _command(name)


def again_as(name: str, version: str) -> str:
    """Return the command that installs that very release again, from where it can be had."""
    if version == "unknown":
        return _command(name)
    label = version.partition("+")[2]
    if not label:
        return _command(f"{name}=={version}")
    if name in ON_INDEX and _LABEL.fullmatch(label):
        return f"{_command(f'{name}=={version}')} --index-url {INDEX}/{label}"
    return f"install {name} {version} again from where it came: PyPI has no such build"


def of_cuda(name: str, version: str, cuda: str | None) -> str:
    """Return the command that installs the build of a release for another CUDA, None for the CPU."""
    release = version.partition("+")[0]
    label = "cpu" if cuda is None else f"cu{cuda.replace('.', '')}"
    if name not in ON_INDEX or not _LABEL.fullmatch(label):
        return ""
    return f"{_command(f'{name}=={release}')} --index-url {INDEX}/{label}"


def for_torchs_library(library: str, question: Question, *, other: bool = False) -> str:
    """Return the command that brings a library that PyTorch needs, empty where none is known.

    PyTorch pins what brings it, by itself or as an extra of cuda-toolkit. With `other` the release
    that is installed is not the one that it needs.
    """
    wheel, extra = next((w for begin, w in _WHEELS.items() if library.startswith(begin)), ("", ""))
    environment = question.inventory.environment
    installed = environment.installed if environment is not None else None
    torch = _installed("torch", question)
    if not wheel or installed is None or torch is None:
        return ""
    for line in torch.requires:
        pin = pins.applying(line, installed)
        if pin is None:
            continue
        name = pin.name.lower()
        if re.fullmatch(rf"{wheel}(-cu[0-9]+)?", name):
            return _command(f"{name}{pin.specifier}")
        if name == _TOOLKIT and extra in pin.extras:
            package = _installed(wheel, question)
            if package is not None and not other:
                return again_as(package.name, package.version)
            return f"pip install {_quoted(f'{name}[{extra}]{pin.specifier}')}"
    return ""


def library_of(symbol: str) -> str:
    """Return how the name of NVIDIA's library begins that has a symbol, empty where none is known.

    Its functions begin with its name: ncclCommInitRank is one of libnccl.
    """
    names = sorted(_WHEELS, key=len, reverse=True)
    return next((n for n in names if symbol.startswith(n.removeprefix("lib"))), "")


def for_torchs_symbol(symbol: str, question: Question) -> str:
    """Return the command for the release of NVIDIA's library that PyTorch needs for a symbol."""
    library = library_of(symbol)
    return for_torchs_library(library, question, other=True) if library else ""


def _command(requirement: str) -> str:
    # The name alone would bring the newest release, and with dependencies other releases of them.
    return f"pip install --force-reinstall --no-deps {_quoted(requirement)}"


def _quoted(requirement: str) -> str:
    """Quote what a shell may read otherwise, and a version for the eye."""
    safe = shlex.quote(requirement)
    return f"'{requirement}'" if safe == requirement and "=" in requirement else safe


def _installed(name: str, question: Question) -> Package | None:
    environment = question.inventory.environment
    if environment is None or environment.installed is None:
        return None
    return next(iter(pins.active(environment.installed).get(name, ())), None)
