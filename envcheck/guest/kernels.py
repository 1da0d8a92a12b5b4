"""Every Triton kernel, compiled for one target without a GPU: what came of each, unjudged.

One child process imports Triton (and no torch) and forks one more for each function, dtype
and configuration, so that a compiler which aborts or hangs costs one entry. Triton 3.3 to 3.9
were tried; 3.0 to 3.2 have another interface, which is served as well, because what they say
about a new card is evidence.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from envcheck.core import codec
from envcheck.core.compiled import (
    Compilation,
    CompiledKernels,
    CompileRequest,
    MachineCode,
    Outcome,
)
from envcheck.core.kernels import Config, Kernel
from envcheck.core.sm import Sm
from envcheck.guest import cubin, elf, trial, words
from envcheck.guest.resources import resources_of

_IMPORT_SECONDS = 120
_LIST_SECONDS = 30
_MAX_FUNCTIONS = 16
"""For each dtype and configuration of a kernel: only the last resort's deadline rests on it."""
_WARP_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One function of one kernel for one dtype and one configuration: what is compiled."""

    kernel: Kernel
    dtype: str
    config: Config
    index: int
    """Which of the functions that `compilations` of the kernel returns."""
    function: str

    def result(self, outcome: Outcome, **more: Any) -> Compilation:
        return Compilation(
            kernel=self.kernel.name,
            function=self.function,
            dtype=self.dtype,
            config=self.config.label,
            outcome=outcome,
            **more,
        )


def compile_kernels(request: CompileRequest) -> CompiledKernels:
    """Compile all Triton kernels of the request, in children of this process."""
    kernels = tuple(k for k in request.kernels if k.kind == "triton")
    request = replace(request, kernels=kernels)
    most = sum(len(k.pairs()) for k in kernels) * _MAX_FUNCTIONS
    patience = _IMPORT_SECONDS + len(kernels) * _LIST_SECONDS + most * request.deadline
    result = trial.run(partial(_compile_all, request), deadline=patience)
    variables = {k: v for k, v in sorted(os.environ.items()) if k.startswith("TRITON_")}
    facts: dict[str, Any] = result.value if isinstance(result.value, dict) else {}
    return CompiledKernels(
        target=request.target,
        triton=facts.get("triton"),
        outcome=replace(result.outcome, stdout=(), stderr=()) if facts else result.outcome,
        message=words.reason(result.outcome),
        variables=variables,
        compilations=tuple(
            codec.from_json(Compilation, each, "compilation")
            for each in facts.get("compilations", ())
        ),
    )


def _compile_all(request: CompileRequest) -> dict[str, Any]:
    """Import Triton and fork; runs in a child, because importing it may be all it takes."""
    sys.dont_write_bytecode = True
    os.environ["TRITON_CACHE_DIR"] = request.cache
    os.makedirs(request.cache, exist_ok=True)
    triton = importlib.import_module("triton")
    target = Sm.parse(request.target)
    _warm(target)
    done: list[Compilation] = []
    pieces: list[_Piece] = []
    for kernel in request.kernels:
        for entry in _pieces(kernel, request.root):
            if isinstance(entry, Compilation):
                done.append(entry)
            elif Sm.parse(kernel.dtypes[entry.dtype].min_sm) > target:
                why = f"{entry.dtype} needs {kernel.dtypes[entry.dtype].min_sm}"
                skipped = Outcome(status="not-applicable", error=why)
                done.append(entry.result(skipped, message=why))
            else:
                pieces.append(entry)
    works = [partial(_compile, piece, request.root, target.number) for piece in pieces]
    parallel = request.parallel or len(os.sched_getaffinity(0))
    trials = trial.run_all(works, deadline=request.deadline, parallel=parallel)
    done += map(partial(_result, request.cache), pieces, trials)
    return {"triton": triton.__version__, "compilations": codec.to_json(done)}


def _warm(target: Sm) -> None:
    """Let Triton work out once what every child would: the hash of its own files takes longest."""
    with contextlib.suppress(Exception):
        importlib.import_module("triton.compiler.code_generator")
        cache = importlib.import_module("triton.runtime.cache")
        compiler = importlib.import_module("triton.compiler.compiler")
        (getattr(cache, "triton_key", None) or compiler.triton_key)()
        compiler.make_backend(_gpu(target.number)).hash()


def _pieces(kernel: Kernel, root: str) -> Iterator[_Piece | Compilation]:
    """Yield what there is to compile of a kernel, or how asking it for that ended."""
    listed = trial.run(partial(_functions, kernel, root), deadline=_LIST_SECONDS)
    if not isinstance(listed.value, list):
        yield Compilation(
            kernel=kernel.name,
            function="",
            dtype="",
            config="",
            outcome=listed.outcome,
            message=words.reason(listed.outcome),
        )
        return
    for (dtype, config), functions in zip(kernel.pairs(), listed.value, strict=True):
        for index, function in enumerate(functions):
            yield _Piece(kernel=kernel, dtype=dtype, config=config, index=index, function=function)


def _functions(kernel: Kernel, root: str) -> list[list[str]]:
    """Return the names of the functions for each dtype and configuration."""
    compilations = load(kernel.name, root).compilations
    return [
        [entry["fn"].__name__ for entry in compilations(dtype, config.values)]
        for dtype, config in kernel.pairs()
    ]


def load(name: str, root: str) -> ModuleType:
    """Load `kernel.py` of a kernel by its path; `root` never comes onto `sys.path`."""
    path = os.path.join(root, name, "kernel.py")
    spec = importlib.util.spec_from_file_location(f"envcheck_kernel_{name}", path)
    if spec is None or spec.loader is None:
        message = f"{path} cannot be loaded"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _compile(piece: _Piece, root: str, number: int) -> dict[str, Any]:
    """Compile one function; runs in a child of the process that imported Triton."""
    triton = importlib.import_module("triton")
    config = piece.config
    entry = load(piece.kernel.name, root).compilations(piece.dtype, config.values)[piece.index]
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    compiled = triton.compile(_source(entry), target=_gpu(number), options=options)
    code = compiled.asm["cubin"]
    parsed = elf.read(code)
    metadata = compiled.metadata
    taken = resources_of(code, parsed, metadata.name)
    ptx = compiled.asm.get("ptx") if hasattr(compiled.asm, "get") else compiled.asm["ptx"]
    facts = MachineCode(
        target=cubin.code_of_cubin(code, parsed).sm,
        ptx_isa=cubin.code_of_ptx(ptx.encode()).isa if ptx else None,
        registers=taken.registers,
        stack_bytes=taken.stack_bytes,
        static_shared=taken.static_shared,
        dynamic_shared=metadata.shared,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
    )
    return {"code": codec.to_json(facts), "hash": str(getattr(compiled, "hash", ""))}


def _gpu(number: int) -> Any:
    return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", number, _WARP_SIZE)


def _source(entry: Mapping[str, Any]) -> Any:
    """Build what the compiler of this Triton takes: aligned pointers, sizes that divide by 16."""
    compiler = importlib.import_module("triton.compiler")
    function, types, constants = entry["fn"], entry["signature"], entry["constexprs"]
    names = list(function.arg_names)
    divisible = [names.index(name) for name in entry["divisible"]]
    if "constexprs" in inspect.signature(compiler.ASTSource).parameters:  # Triton 3.3 and later
        signature = {name: types.get(name, "constexpr") for name in names}
        attributes = {(index,): [["tt.divisibility", 16]] for index in divisible}
        return compiler.ASTSource(function, signature, constexprs=constants, attrs=attributes)
    if hasattr(compiler, "AttrsDescriptor"):  # before Triton 3.2
        described = compiler.AttrsDescriptor(divisible_by_16=tuple(divisible), equal_to_1=())
    else:
        describe = importlib.import_module("triton.backends.compiler").AttrsDescriptor
        described = describe.from_hints(dict.fromkeys(divisible, 16))
    return compiler.ASTSource(function, types, constants=constants, attrs=described)


def _result(cache: str, piece: _Piece, ended: trial.Trial) -> Compilation:
    """Put together what is known of one compile."""
    if not isinstance(ended.value, dict):
        return piece.result(ended.outcome, message=words.reason(ended.outcome))
    said = words.distinct((*ended.outcome.stderr, *ended.outcome.stdout))
    return piece.result(
        replace(ended.outcome, stdout=(), stderr=()),
        warnings=_remembered(os.path.join(cache, f"{ended.value['hash']}.warnings"), said),
        code=codec.from_json(MachineCode, ended.value["code"], "code"),
    )


def _remembered(file: str, said: tuple[str, ...]) -> tuple[str, ...]:
    """Return the warnings of now and of the first time: one from the cache is compiled silently."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if os.path.exists(file):
            with open(file, encoding="utf-8") as handle:
                said = words.distinct((*handle.read().splitlines(), *said))
        elif said:
            with open(file, "w", encoding="utf-8") as handle:
                handle.write("\n".join(said))
    return said
