"""Every Triton kernel, compiled for one target without a GPU: what came of each, unjudged.

One child process imports Triton (and no torch), forks one for each kernel, which loads it,
and that one more for each function, dtype and configuration: a compiler that aborts or hangs
costs one entry, a kernel that cannot be loaded its own, and nothing is imported twice. Triton
3.3 to 3.9 were tried; 3.0 to 3.2 have another interface, which is served as well, because
what they say about a new card is evidence.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from envcheck.core import codec
from envcheck.core.compiled import (
    Compilation,
    CompiledKernels,
    MachineCode,
    Outcome,
)
from envcheck.core.kernels import Config, Kernel
from envcheck.core.request import CompileRequest
from envcheck.core.sm import Sm
from envcheck.guest import cubin, elf, trial, words
from envcheck.guest.resources import resources_of

_IMPORT_SECONDS = 120
_LOAD_SECONDS = 30
_MAX_FUNCTIONS = 16
"""For each dtype and configuration of a kernel: only the last resort's deadline rests on it."""
_WARP_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One function of one kernel for one dtype and one configuration: what is compiled."""

    kernel: str
    dtype: str
    config: Config
    problem: str
    entry: Mapping[str, Any]
    """As `compilations` of the kernel returned it."""

    def result(self, outcome: Outcome, **more: Any) -> Compilation:
        return Compilation(
            kernel=self.kernel,
            function=self.entry["fn"].__name__,
            dtype=self.dtype,
            config=self.config.label,
            problem=self.problem,
            outcome=outcome,
            **more,
        )


def compile_kernels(request: CompileRequest) -> CompiledKernels:
    """Compile all Triton kernels of the request, in children of this process."""
    kernels = tuple(k for k in request.kernels if k.kind == "triton")
    request = replace(request, kernels=kernels)
    result = trial.run(partial(_compile_all, request), deadline=patience(request))
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


def patience(request: CompileRequest) -> int:
    """Return the seconds after which even the process that watches over all is given up."""
    triton = (k for k in request.kernels if k.kind == "triton")
    return _IMPORT_SECONDS + sum(_patience(k, request) for k in triton)


def _patience(kernel: Kernel, request: CompileRequest) -> int:
    """Return the seconds after which the process that watches over one kernel is given up."""
    return _LOAD_SECONDS + len(kernel.pairs()) * _MAX_FUNCTIONS * request.deadline


def _compile_all(request: CompileRequest) -> dict[str, Any]:
    """Import Triton and fork; runs in a child, because importing it may be all it takes."""
    sys.dont_write_bytecode = True
    os.environ["TRITON_CACHE_DIR"] = request.cache
    os.makedirs(request.cache, exist_ok=True)
    triton = importlib.import_module("triton")
    _warm(Sm.parse(request.target))
    done: list[Any] = []
    for kernel in request.kernels:
        work = partial(_compile_kernel, kernel, request)
        ended = trial.run(work, deadline=_patience(kernel, request))
        if isinstance(ended.value, list):
            done += ended.value
        else:
            done.append(_lost(kernel, ended.outcome))
    return {"triton": triton.__version__, "compilations": codec.to_json(done)}


def _lost(kernel: Kernel, outcome: Outcome) -> Compilation:
    """Say that not even the functions of a kernel are known."""
    late = outcome.signal == "SIGALRM"
    return Compilation(
        kernel=kernel.name,
        function="",
        dtype="",
        config="",
        outcome=outcome,
        message=f"not loaded after {_LOAD_SECONDS} s" if late else words.reason(outcome),
    )


def _compile_kernel(kernel: Kernel, request: CompileRequest) -> list[Any]:
    """Load a kernel and fork for each of its pieces; runs in a child of its own."""
    signal.alarm(_LOAD_SECONDS)  # the least that ends a module which hangs while it is loaded
    pieces = _pieces(kernel, request.root)
    signal.alarm(0)
    target = Sm.parse(request.target)
    wanted = [p for p in pieces if Sm.parse(kernel.dtypes[p.dtype].min_sm) <= target]
    parallel = request.parallel or len(os.sched_getaffinity(0))
    works = [partial(_compile, piece, target.number) for piece in wanted]
    trials = trial.run_all(
        works, deadline=request.deadline, parallel=parallel, memory=request.memory
    )
    done = [_result(request.cache, *pair) for pair in zip(wanted, trials, strict=True)]
    for piece in pieces:
        if piece not in wanted:
            why = f"{piece.dtype} needs {kernel.dtypes[piece.dtype].min_sm}"
            outcome = Outcome(status="not-applicable", error=why)
            done.append(piece.result(outcome, message=why))
    return [codec.to_json(each) for each in done]


def _warm(target: Sm) -> None:
    """Let Triton work out once what every child would: the hash of its own files takes longest."""
    with contextlib.suppress(Exception):
        importlib.import_module("triton.compiler.code_generator")
        cache = importlib.import_module("triton.runtime.cache")
        compiler = importlib.import_module("triton.compiler.compiler")
        (getattr(cache, "triton_key", None) or compiler.triton_key)()
        compiler.make_backend(_gpu(target.number)).hash()


def _pieces(kernel: Kernel, root: str) -> list[_Piece]:
    """Return what there is to compile of a kernel."""
    compilations = load(kernel.name, root).compilations
    pieces = [
        _Piece(
            kernel=kernel.name,
            dtype=dtype,
            config=config,
            problem=kernel.problem_of(config),
            entry=entry,
        )
        for dtype, config in kernel.pairs()
        for entry in compilations(dtype, config.values)
    ]
    if not pieces:
        # Without this the kernel would be in no finding, and the verdict would not miss it.
        message = "compilations returns nothing for any dtype and configuration"
        raise ValueError(message)
    for piece in pieces:
        with contextlib.suppress(Exception):
            piece.entry["fn"].cache_key  # noqa: B018 - Triton remembers this digest of the source
    return pieces


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


def _compile(piece: _Piece, number: int) -> dict[str, Any]:
    """Compile one function; runs in a child of the process that loaded its kernel."""
    triton = importlib.import_module("triton")
    options = {"num_warps": piece.config.num_warps, "num_stages": piece.config.num_stages}
    compiled = triton.compile(_source(piece.entry), target=_gpu(number), options=options)
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
