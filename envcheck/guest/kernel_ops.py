"""The kernels of folders as operations: launched with each configuration, and compared.

What `kernel.toml` and `kernel.py` of a folder say is all that an operation needs. A Triton
kernel is compiled for exactly the sizes that it is launched with; that is done before, aside
and without the card (`precompile`), so that the trials only launch.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import Any

from envcheck.core.kernels import Config, Kernel
from envcheck.core.request import ExecuteRequest
from envcheck.core.sm import Sm
from envcheck.guest import cuda_kernels, kernels, trial
from envcheck.guest.operands import Operands
from envcheck.guest.ops.once import Once
from envcheck.guest.ops.op import Case, Expected, NotApplicable, Op, Tensors
from envcheck.guest.ops.torches import torch

_COMPILE_SECONDS = 60
_FOR_EACH = 4
"""Processors for each compile: more at a time slow down what runs on the card meanwhile."""
_NONE = Config(constants={}, num_warps=1, num_stages=1)
_PATTERNS = ("ones", "zeros")


def ops(request: ExecuteRequest) -> tuple[Op, ...]:
    """Return one operation for each kernel of the request."""
    wanted = [k for k in request.kernels if k.kind in request.parts]
    return tuple(_op(kernel, request) for kernel in wanted)


def _op(kernel: Kernel, request: ExecuteRequest) -> Op:
    loaded = partial(_load, kernel.name, request.root)

    def inputs(case: Case, draw: Operands) -> Tensors:
        found: Tensors = loaded().inputs(case.sizes, _values(case), draw)
        return found

    def call(operands: Tensors, case: Case) -> Tensors:
        if kernel.kind == "cuda":
            _load_library(kernel, request)
        found: Tensors = loaded().launch(operands, _values(case))
        return found

    def reference(operands: Tensors, case: Case) -> Mapping[str, Expected]:
        found: Mapping[str, Expected] = loaded().reference(operands, _values(case))
        return found

    cases = _cases(kernel)
    return Op(
        name=kernel.name,
        family=kernel.kind,
        part=kernel.kind,
        dtypes=kernel.dtypes,
        cases=cases,
        inputs=inputs,
        call=call,
        reference=Once(reference, cases),
        exact=(),
    )


def _cases(kernel: Kernel) -> tuple[Case, ...]:
    """Return every configuration with the last shape, and the first of a problem with all.

    Whether a tail is masked depends on the configuration, so each gets a shape with tails.
    """
    *others, last = kernel.shapes
    found, problems = [], set()
    for config in kernel.configs or (_NONE,):
        problem = kernel.problem_of(config) if kernel.configs else ""
        case = Case(sizes=last, config=config, problem=problem, only=config.dtypes)
        found.append(case)
        if (problem, config.dtypes) not in problems:
            problems.add((problem, config.dtypes))
            found += [replace(case, sizes=sizes) for sizes in others]
            middle = replace(case, sizes=(others or [last])[-1])
            found += [replace(middle, pattern=pattern) for pattern in _PATTERNS]
    return tuple(found)


def _values(case: Case) -> dict[str, int]:
    return case.config.values if case.config is not None else {}


@cache
def _load(name: str, root: str) -> ModuleType:
    return kernels.load(name, root)


def _load_library(kernel: Kernel, request: ExecuteRequest) -> None:
    library = built(kernel, request)
    if library is None:
        message = f"{kernel.name} was not built here"
        raise NotApplicable(message)
    torch().ops.load_library(library)  # again and again is the same as once


def built(kernel: Kernel, request: ExecuteRequest) -> str | None:
    """Return the library of a CUDA C++ kernel, None where none was built for this torch."""
    pattern = cuda_kernels.pattern(kernel, request.cache, request.arch_list, torch().__version__)
    found = sorted(glob.glob(pattern), key=os.path.getmtime)
    return found[-1] if found else None


def precompile(request: ExecuteRequest, sm: Sm, seconds: float) -> None:
    """Compile what Triton kernels will be launched with, into the cache of this process.

    What fails here fails again when it is launched, where it is told.
    """
    works: dict[object, Callable[[], object]] = {}
    for kernel in request.kernels:
        if kernel.kind == "triton":
            op = _op(kernel, request)
            for dtype, about in kernel.dtypes.items():
                if sm >= Sm.parse(about.min_sm):
                    for case in op.pairs(dtype):
                        key = (kernel.name, dtype, case.config and case.config.label, *_kinds(case))
                        works.setdefault(key, partial(_compile, op, dtype, case, sm.number))
    parallel = max(len(os.sched_getaffinity(0)) // _FOR_EACH, 1)
    deadline = min(_COMPILE_SECONDS, max(seconds, 1))
    trial.run_all(list(works.values()), deadline=deadline, parallel=parallel)


def _kinds(case: Case) -> tuple[str, ...]:
    """Return what Triton looks at in a size: whether it is 1, and whether it divides by 16."""
    return tuple("1" if s == 1 else "16" if s % 16 == 0 else "" for s in case.sizes.values())


class _NoCard:
    """Stands for the driver while compiling: it says which card is meant, and launches nothing."""

    def __init__(self, number: int) -> None:
        target: Any = importlib.import_module("triton.backends.compiler").GPUTarget
        self._target = target("cuda", number, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002 - as the driver's
        return 0


def _compile(op: Op, dtype: str, case: Case, number: int) -> None:
    """Do all that a launch does but launch; runs in a child of its own."""
    jit: Any = importlib.import_module("triton.runtime.jit")
    runtime: Any = importlib.import_module("triton.runtime.driver").driver
    runtime.set_active(_NoCard(number))
    jit.KernelInterface.__getitem__ = _warmed_up
    operands = op.inputs(case, Operands(dtype, seed=1, device="cpu"))
    with contextlib.suppress(Exception):
        op.call(operands, case)


def _warmed_up(function: Any, grid: object) -> Callable[..., None]:
    """Return what compiles a kernel and the code that starts it, in the place of a launch."""

    def compile_all(*arguments: object, **options: object) -> None:
        compiled = function.warmup(*arguments, grid=grid, **options)
        # Up to Triton 3.7 a C compiler makes it for each signature; later there is one for all.
        with contextlib.suppress(Exception):
            driver: Any = importlib.import_module("triton.backends.nvidia.driver")
            driver.CudaLauncher(compiled.src, compiled.metadata)

    return compile_all
