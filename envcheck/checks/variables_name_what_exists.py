"""Variables that name programs, files, folders or archs name what exists and can be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.checks.check import Check, Question
from envcheck.core import arch_list, jit_needs
from envcheck.core.model import Domain, Environment, Finding, Status
from envcheck.core.tools import Named

_FOLDERS = {
    *("CUDA_HOME", "CUDA_PATH", "TRITON_LIBCUDA_PATH", "TRITON_CUDACRT_PATH"),
    *("TRITON_CUDART_PATH", "CUDNN_PATH"),
}
_PROGRAMS = {"CC", "CXX", "CUDACXX", "NVCC_CCBIN", "PYTORCH_NVCC"}
# With any of these a package that builds CUDA cannot build.
_FOR_BUILDS = {"CUDA_HOME", "CUDA_PATH", "CC", "CXX", "NVCC_CCBIN", "PYTORCH_NVCC"}
# Triton falls back to its own programs, the linker and the loader go on without the rest.
# Source: triton/knobs.py of 3.8, ld.so(8).
_ARCHS = "TORCH_CUDA_ARCH_LIST"
_BITSANDBYTES = "BNB_CUDA_VERSION"
# Tested for presence, so that a value of 0 turns them on; those in the second group are off
# when empty. Source: ggml-cuda.cu (`getenv(...) != nullptr`); PyTorch 2.14.1: torch/__init__.py,
# _inductor/cpp_builder.py and utils/cpp_extension.py.
_PRESENT = {"GGML_CUDA_P2P", "TORCH_CUDA_SANITIZER"}
_NOT_EMPTY = {"TORCH_INDUCTOR_INSTALL_GXX", "TORCH_USE_RTLD_GLOBAL", "TORCH_NO_COMPILER_WRAPPER"}
_OFF = {"0", "false", "off", "no"}


@dataclass(frozen=True, slots=True)
class _Fault:
    message: str
    remedy: str
    ends: str | None = None
    """The package that ends with it, None where something merely may."""


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    if environment is None or environment.tools is None:
        yield CHECK.skip("variables", "only files were looked at, not where a job would run")
        return
    named = environment.tools.named
    if not named:
        yield CHECK.skip("variables", "none of those that are looked at is set")
        return
    needs = jit_needs.who_needs(jit_needs.needs(environment), jit_needs.NVCC)
    builder = next((n.who for n in needs if n.always), None)
    for one in named:
        yield _judge(one, _fault(one, question, environment, builder))


def _judge(one: Named, fault: _Fault | None) -> Finding:
    evidence = {"value": one.value, "found": one.found}
    if fault is None:
        what = f"names a {one.found}" if one.found != "text" else "can be read"
        message = f"{one.value}: {what}"
        return CHECK.finding(
            one.variable, Status.PASS, message, domain=Domain.JOB, required=False, evidence=evidence
        )
    return CHECK.finding(
        one.variable,
        Status.WARN if fault.ends is None else Status.FAIL,
        fault.message + (f"; {fault.ends} ends with it" if fault.ends else ""),
        remedy=fault.remedy,
        domain=Domain.JOB,
        evidence=evidence,
    )


def _fault(
    one: Named, question: Question, environment: Environment, builder: str | None
) -> _Fault | None:
    name, value = one.variable, one.value
    unset = f"unset {name}"
    if name == _ARCHS:
        return _archs(value, question, builder)
    if name == _BITSANDBYTES:
        return _bitsandbytes(value, environment)
    if name in _PRESENT or name in _NOT_EMPTY:
        off = value.lower() in _OFF or (not value and name in _PRESENT)
        said = f"set to {value!r}, which turns it on: only whether it is set counts"
        return _Fault(said, unset) if off else None
    ends = builder if name in _FOR_BUILDS else _triton(name, environment)
    if name in _PROGRAMS:
        # nvcc takes a folder as well, and the gcc in it.
        wrong = one.found != "program" and (name, one.found) != ("NVCC_CCBIN", "folder")
        return _Fault(f"{value}: no such program", unset, ends) if wrong else None
    if one.found == "absent":
        return _Fault(f"{value}: there is no such file or folder", unset, ends)
    expected = "folder" if name in _FOLDERS else "file"
    if one.found not in (expected, "text"):
        return _Fault(f"{value}: a {one.found}, where a {expected} is needed", unset, ends)
    return None


def _triton(name: str, environment: Environment) -> str | None:
    """Return Triton for the one variable that it has no fallback for."""
    if name == "TRITON_LIBDEVICE_PATH" and environment.triton is not None:
        return f"triton {environment.triton.version}"
    return None


def _archs(value: str, question: Question, builder: str | None) -> _Fault | None:
    sm = question.sm
    wanted = f"{sm.number // 10}.{sm.number % 10}"
    remedy = f"export {_ARCHS}={wanted}"
    try:
        archs = arch_list.parse(value)
    except ValueError as error:
        said = str(error)
        whole = said if repr(value) in said else f"{value!r}: {said}"
        return _Fault(whole, remedy, builder)
    if archs is None or arch_list.serves(archs, sm):
        return None
    return _Fault(f"{value!r}: what is built with it holds no code for {sm}", remedy, builder)


def _bitsandbytes(value: str, environment: Environment) -> _Fault | None:
    """Judge BNB_CUDA_VERSION, by which bitsandbytes loads one library and no other."""
    package = next((d for d in environment.distributions if d.name == "bitsandbytes"), None)
    if package is None or not value:
        return None
    wanted = f"bitsandbytes/libbitsandbytes_cuda{value}.so"
    if wanted in package.files:
        return None
    who = f"bitsandbytes {package.version}"
    return _Fault(f"{value}: {who} has no {wanted}", f"unset {_BITSANDBYTES}", who)


CHECK = Check(
    id="variables-name-what-exists",
    claim="Variables that name programs, files, folders or archs name what exists.",
    how=(
        "Looks at a fixed list of variables (CC, CXX, CUDA_HOME, TRITON_*_PATH, LD_PRELOAD, "
        "NCCL_TOPO_FILE and the like): what a path names must exist and be of the right kind, "
        "TORCH_CUDA_ARCH_LIST must parse and serve the card, BNB_CUDA_VERSION must name a "
        "library that bitsandbytes has, and a switch that is tested for presence must not be "
        "set to 0. It fails where an installed package ends with it, and warns otherwise."
    ),
    classes=("A4", "B2", "B3"),
    remedy="Unset the variable, or correct it.",
    run=_run,
)
