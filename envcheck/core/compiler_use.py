"""Which compiler each of its users runs, and how each takes the variable that names it.

Source: `triton/runtime/build.py` of 2.3.1 to 3.9.0 starts CC as one program. In PyTorch
`_inductor/cpp_builder.py` starts CXX as one program up to 2.13.0, and as words in 2.14.1;
`utils/cpp_extension.py` quotes CXX to one word in 2.13.0 and 2.14.1, and let the shell split it
before; both hand CC to nvcc as it is, through a shell. nvcc 13.5 takes NVCC_CCBIN, and what
follows `-ccbin`, as one name of a program or folder, and refuses a second file (tried).
CUDAHOSTCXX is CMake's alone.
"""

from __future__ import annotations

from enum import Enum

from envcheck.core import jit_needs
from envcheck.core.tools import Compiler, Tools

_INDUCTOR_SPLITS = (2, 14)
_BUILDER_QUOTES = (2, 13)


class Fault(Enum):
    """Why a compiler that is named cannot be used."""

    ABSENT = "absent"
    ONE_NAME = "one-name"
    WORDS = "words"
    MORE = "more"
    NO_COMPILER = "no-compiler"
    UNKNOWN = "unknown"


def chosen(tool: str, tools: Tools) -> Compiler | None:
    """Return the compiler that would be run, None where none is named or found."""
    if tool == jit_needs.C:
        return next((c for c in tools.compilers if c.language == "c"), None)
    if tool == jit_needs.HOST:
        return _host(tools)
    default = "g++" if tool == jit_needs.CXX else "c++"
    return _of(tools, "c++", default)


def _of(tools: Tools, language: str, default: str) -> Compiler | None:
    """Return what a variable names, else the one program that is asked for without it.

    Where kinds were not looked at yet, only the first program of PATH was noted.
    """
    mine = (c for c in tools.compilers if c.language == language)
    return next((c for c in mine if c.origin != "PATH" or c.named == default or not c.kind), None)


def _host(tools: Tools) -> Compiler | None:
    """Return the host compiler of nvcc: PyTorch hands it CC, else NVCC_CCBIN names it."""
    found = _of(tools, "c", "gcc")
    if found is not None and found.origin == "CC":
        return found
    return next((c for c in tools.compilers if c.language == "nvcc"), found)


def fault(tool: str, compiler: Compiler, torch: tuple[int, ...]) -> Fault | None:
    """Return what is wrong with a compiler for one user; `torch` is the release of PyTorch."""
    if compiler.path is None:
        return Fault.ABSENT
    words = _as_words(tool, compiler, torch)
    if not (compiler.as_words if words else compiler.one_name):
        return Fault.WORDS if words else Fault.ONE_NAME
    if tool == jit_needs.HOST and words and not _options_alone(compiler.named):
        return Fault.MORE
    if compiler.kind in ("other", "launcher"):
        return Fault.NO_COMPILER
    return Fault.UNKNOWN if compiler.kind == "script" else None


def _as_words(tool: str, compiler: Compiler, torch: tuple[int, ...]) -> bool:
    if tool == jit_needs.CXX:
        return torch >= _INDUCTOR_SPLITS
    if tool == jit_needs.EXTENSION_CXX:
        return torch < _BUILDER_QUOTES
    return tool == jit_needs.HOST and compiler.origin == "CC"


def _options_alone(named: str) -> bool:
    """Say whether options are all that follows the program: nvcc takes other words for files."""
    return all(word.startswith("-") for word in named.split()[1:])
