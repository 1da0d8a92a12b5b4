"""The compilers that a job would run, by the variables that name them and by PATH.

None is run: what a program is, its own name and bytes tell. A value such as `ccache gcc -m64` is
one name to some and words to others, so both readings are told.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace

from envcheck.core.names import visible
from envcheck.core.tools import Compiler
from envcheck.guest.named_variables import LAUNCHERS, program

_VERSION = re.compile(r"(?:^|-)(gcc|g\+\+|clang|clang\+\+)(?:-([0-9]{1,3}))?$")
# What compilers are called, with or without a target before and a version behind the name.
_CALLED = re.compile(r"(?:cc|[cg]\+\+|clang(?:\+\+)?|ic[px]x?|nvc|xlc|zig)(?:[-_.]?[0-9][0-9.]*)?$")
# What the drivers of gcc and clang hand to the programs that they run.
_MARKS = (b"COLLECT_GCC", b"-cc1\0")
_IN_SCRIPT = re.compile(rb"(?<![\w+])(?:g?cc|[cg]\+\+|clang(?:\+\+)?|icp?x|nvc|zig)(?![\w+])")
_MAX_PROGRAM = 1 << 28
_MAX_VALUE = 4096


def look() -> Iterator[Compiler]:
    """Yield the compiler that a variable names, else all of PATH that Triton or PyTorch ask for."""
    for language, variable, names in (
        ("c", "CC", ("gcc", "clang")),
        ("c++", "CXX", ("g++", "clang++", "c++")),
        ("nvcc", "NVCC_CCBIN", ()),
    ):
        value = os.environ.get(variable)
        if value is not None:
            yield _named(language, variable, value[:_MAX_VALUE])
            continue
        for name in names:
            if path := shutil.which(name):
                yield _compiler(language, "PATH", name, path)


def _named(language: str, variable: str, value: str) -> Compiler:
    # Of a folder nvcc takes the gcc in it.
    folder = language == "nvcc" and os.path.isdir(value)
    whole = shutil.which(os.path.join(value, "gcc") if folder else value) if value else None
    words = program(value)
    made = _compiler(language, variable, value, whole or words)
    return replace(made, one_name=whole is not None, as_words=words is not None)


def _compiler(language: str, origin: str, named: str, path: str | None) -> Compiler:
    family, version = (None, None) if path is None else identify(path)
    return Compiler(
        language=language,
        origin=origin,
        named=visible(named),
        path=None if path is None else visible(path),
        family=family,
        version=version,
        kind=None if path is None else kind(path),
    )


def kind(path: str) -> str:
    """Return what a program is: `compiler`, `launcher`, `script` or `other`."""
    real = os.path.realpath(path)
    called, name = os.path.basename(path), os.path.basename(real)
    if _CALLED.search(called) or _CALLED.search(name):
        return "compiler"
    if name in LAUNCHERS:
        return "launcher"
    try:
        with open(real, "rb") as handle:
            data = handle.read(_MAX_PROGRAM)
    except OSError:  # it may be run and not read
        return "script"
    if data.startswith(b"#!"):
        return "compiler" if _IN_SCRIPT.search(data) else "script"
    return "compiler" if any(mark in data for mark in _MARKS) else "other"


def identify(path: str) -> tuple[str | None, int | None]:
    """Return family and major version of a compiler by the names of its files."""
    real = os.path.realpath(path)
    match = _VERSION.search(os.path.basename(real))
    if match is None:
        return None, None
    family = "clang" if "clang" in match[1] else "gcc"
    if match[2]:
        return family, int(match[2])
    if family == "clang":
        return family, None
    # Where the name has no number (Fedora, conda, /usr/local), its own folder has one.
    root = glob.escape(os.path.dirname(os.path.dirname(real)))
    folders = glob.glob(f"{root}/lib/gcc/*/*/") + glob.glob(f"{root}/lib64/gcc/*/*/")
    names = {os.path.basename(os.path.dirname(f)).partition(".")[0] for f in folders}
    numbers = {int(n) for n in names if n.isdecimal() and len(n) <= 3}
    return family, numbers.pop() if len(numbers) == 1 else None
