"""Who compiles while a job runs, and with what: the packages whose own code says so.

`always` is true where the package does nothing without compiling, so a missing tool ends the job;
it is false where it merely can compile, which many jobs with that package never do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from envcheck.core.distribution import Distribution
from envcheck.core.model import Environment

C, CXX, HEADER, LDCONFIG, LINK = "C compiler", "C++ compiler", "Python.h", "ldconfig", "libcuda.so"
EXTENSION_CXX, NVCC, HOST, NINJA = "C++ compiler of extensions", "nvcc", "gcc of nvcc", "ninja"

_LAUNCHER = frozenset({C, HEADER, LDCONFIG, LINK})
_EXTENSION = frozenset({EXTENSION_CXX, HEADER, NVCC, HOST, NINJA})

# The first Triton that links `-l:libcuda.so.1`; those before link `-lcuda`, which needs a file
# called libcuda.so. Source: `libraries` in backends/nvidia/driver.py (before 3.0 `-lcuda` in
# common/build.py) of the wheels 2.3.1, 3.1.0, 3.3.1, 3.4.0, 3.5.1 | 3.6.0, 3.7.1, 3.8.0, 3.9.0.
# In all of them the driver's module is compiled with a C compiler at the first kernel.
_LINKS_BY_SONAME = (3, 6)

# Packages whose kernels are Triton's alone, or that launch some in ordinary use. Source: the
# wheels liger_kernel 0.8.5, fla_core 0.6.0 and unsloth 2026.10.9 (`@triton.jit`, nothing
# compiled in them); for vllm and sglang their reports (sglang#1067, sglang#1117).
_TRITON_USERS = frozenset(
    {"liger-kernel", "fla-core", "flash-linear-attention", "unsloth", "vllm", "sglang"}
)

# Packages that build CUDA with torch.utils.cpp_extension or by the same rules when they are
# used. The first group does so always, unless a wheel of theirs holds the compiled library.
# Source: gsplat 1.5.3 `cuda/_backend.py`, exllamav2 0.3.2 `ext.py`, nvdiffrast's reports;
# deepspeed 0.19.8 `op_builder/builder.py`, flashinfer_python 0.7.4 `jit/cpp_ext.py`.
_BUILD_THEMSELVES = frozenset({"gsplat", "exllamav2", "nvdiffrast"})
_CAN_BUILD = frozenset({"deepspeed", "flashinfer-python"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One package, and what it compiles with."""

    who: str
    """`vllm 0.11.0`."""
    tools: frozenset[str]
    why: str
    always: bool


def needs(environment: Environment) -> tuple[Need, ...]:
    """Return who compiles in an environment, those that always do first."""
    installed = {d.name: d for d in environment.distributions}
    found = [n for d in environment.distributions if (n := _of_package(d, installed)) is not None]
    torch, triton = environment.torch, environment.triton
    if torch is not None and torch.hip is None:
        why = "torch.compile of what runs on the CPU"
        found.append(_need(f"torch {torch.version}", {CXX}, why))
    if triton is not None:
        why = "its launcher, at the first Triton kernel or torch.compile on a card"
        found.append(_need(f"triton {triton.version}", _launcher(triton.version), why))
    return tuple(sorted(found, key=lambda need: not need.always))


def _of_package(distribution: Distribution, installed: dict[str, Distribution]) -> Need | None:
    name = distribution.name
    who = f"{name} {distribution.version}"
    triton = installed.get("triton") or installed.get("pytorch-triton")
    if name in _TRITON_USERS and triton is not None:
        why = "Triton's launcher, at its first kernel"
        return _need(who, _launcher(triton.version), why, always=True)
    if name in _BUILD_THEMSELVES and not distribution.files and "torch" in installed:
        if _told(distribution):
            why = "its kernels, at first use: this build brings none"
            return _need(who, _EXTENSION, why, always=True)
        return _need(who, _EXTENSION, "its kernels, where they are not built yet")
    if name in _CAN_BUILD and "torch" in installed:
        return _need(who, _EXTENSION, "the operations that it builds when they are used")
    return None


def _told(distribution: Distribution) -> bool:
    """Say whether its files are known: not without RECORD, nor of a project installed in place."""
    origin = distribution.direct_url or ""
    in_place = origin.startswith("file:") and not origin.endswith(".whl")
    return distribution.record_digest is not None and not in_place


def _need(who: str, tools: set[str] | frozenset[str], why: str, *, always: bool = False) -> Need:
    return Need(who=who, tools=frozenset(tools), why=why, always=always)


def _launcher(version: str) -> frozenset[str]:
    return _LAUNCHER - {LINK} if release(version) >= _LINKS_BY_SONAME else _LAUNCHER


def release(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: 3.5.1+git is (3, 5, 1)."""
    match = re.match(r"\d{1,6}(\.\d{1,6}){0,3}", version)
    return tuple(map(int, match[0].split("."))) if match is not None else ()


def who_needs(every: tuple[Need, ...], tool: str) -> tuple[Need, ...]:
    """Return those that compile with one tool."""
    return tuple(need for need in every if tool in need.tools)
