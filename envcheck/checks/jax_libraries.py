"""The libraries and the compiler that JAX's CUDA plugin loads, against what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envcheck.checks import linking_words as words
from envcheck.checks import pins
from envcheck.checks.check import Question
from envcheck.checks.remedies import owner
from envcheck.core.enforced import cudnn_is_refused
from envcheck.core.installed import Installed, Package
from envcheck.core.linking import ByName
from envcheck.core.model import Status

if TYPE_CHECKING:
    from packaging.requirements import Requirement

CPU = "JAX runs on the CPU, and says so in its log alone"
# What is asked for before the plugin is taken: `_check_cuda_versions` of jax_plugins/xla_cuda12 and 13.
_FIRST = re.compile(r"nvidia-(?:cuda-runtime|cudnn|cufft|cuda-cupti|cublas|cusparse)(?:-cu\d+)?")
_FIRST_LIBRARY = re.compile(r"lib(?:cudart|cudnn|cufft|cupti|cublas|cublasLt|cusparse)\.so\.\d+")
# ptxas and libdevice. Tried with jax 0.10.2, which compiled for a card that was described to it: without
# them `x + 1` ends with `No PTX compilation provider is available`, and a toolkit in /usr/local/cuda helps.
_COMPILER = re.compile(r"nvidia-(?:cuda-nvcc|nvvm)(?:-cu\d+)?")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing about them that is wrong; putting the plugin's extra in mends it."""

    status: Status
    message: str


def faults(plugin: Package, installed: Installed, question: Question) -> Iterator[Fault]:
    """Hold what a plugin names in its extra with-cuda against what is installed and found."""
    there = {name: same[0].version for name, same in pins.active(installed).items()}
    lines = [pins.applying(line, installed, extra="with-cuda") for line in plugin.with_cuda]
    every = [one for one in lines if one is not None]
    asked = _asked(plugin, question)
    if asked:
        yield from _by_loader(asked, every, question)
    else:
        yield from _by_packages([one for one in every if _FIRST.fullmatch(one.name)], there)
    yield from _compiler([one.name for one in every if one.name not in there], question)
    for one in every:
        have = there.get(one.name)
        if have is not None and _FIRST.fullmatch(one.name) and not pins.fits(one, have):
            ends = "cudnn" in one.name and cudnn_is_refused(_least(one), have)
            message = f"wants {one.name}{one.specifier}, but {have} is installed"
            message += ": XLA refuses a cuDNN older than its own" if ends else ""
            yield Fault(Status.FAIL if ends else Status.WARN, message)


def _asked(plugin: Package, question: Question) -> list[ByName]:
    linked = question.inventory.linked
    every = linked.by_name if linked is not None else ()
    return [one for one in every if owner(one.opener, question) == plugin.name]


def _least(requirement: Requirement) -> str:
    """Return the least release that it takes, which is the one that it was built with."""
    return next((s.version for s in requirement.specifier if s.operator == ">="), "")


def _by_loader(
    asked: list[ByName], every: list[Requirement], question: Question
) -> Iterator[Fault]:
    first = [one.name for one in asked if one.path is None and _FIRST_LIBRARY.fullmatch(one.name)]
    later = [one.name for one in asked if one.path is None and one.name not in first]
    if first:
        said = f"the loader does not find {_named(first, question)}, asked for first: {CPU}"
        yield Fault(Status.FAIL, said)
    if later:
        said = (
            f"the loader does not find {_named(later, question)}: what needs it ends while it runs"
        )
        yield Fault(Status.WARN, said)
    built = next((_least(one) for one in every if "cudnn" in one.name), "")
    for one in asked:
        path = one.path or ""
        # That of the system, whose release its file alone tells.
        release = re.search(r"/libcudnn\.so\.(\d+\.\d+)[.\d]*$", path)
        if path.startswith("/") and release is not None and cudnn_is_refused(built, release[1]):
            said = f"takes {path}, and was built with cuDNN {built}: XLA refuses an older one"
            yield Fault(Status.FAIL, said)


def _named(names: list[str], question: Question) -> str:
    """Join names, each with the library for want of which a file of that name cannot be loaded."""
    linked = question.inventory.linked
    wants = {
        opened.path.rpartition("/")[2]: lacking[0].name
        for opened in (linked.files if linked is not None else ())
        if (lacking := words.lacking(opened))
    }
    return ", ".join(f"{n} (it needs {wants[n]})" if n in wants else n for n in names)


def _by_packages(first: list[Requirement], there: dict[str, str]) -> Iterator[Fault]:
    lacking = [one.name for one in first if one.name not in there]
    if first and len(lacking) == len(first):
        message = "none of the libraries of CUDA that it loads is a package here: they are to "
        yield Fault(Status.WARN, message + "come from the system, which was not looked at")
    elif lacking:
        yield Fault(Status.FAIL, f"{', '.join(lacking)} not installed, which it loads first: {CPU}")


def _compiler(lacking: list[str], question: Question) -> Iterator[Fault]:
    names = [name for name in lacking if _COMPILER.fullmatch(name)]
    environment = question.inventory.environment
    tools = environment.tools if environment is not None else None
    message = f"{', '.join(names)} not installed, with which XLA compiles"
    if not names:
        return
    if tools is None:
        yield Fault(Status.WARN, f"{message}: whether a toolkit is there was not looked at")
    elif tools.nvcc is not None and tools.nvcc.path is not None:
        message += f": it is left to the toolkit of the system, {tools.nvcc.home}"
        yield Fault(Status.WARN, message)
    else:
        yield Fault(Status.FAIL, f"{message}, and there is no other toolkit")
