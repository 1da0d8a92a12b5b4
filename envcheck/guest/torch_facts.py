"""What PyTorch and Triton say of themselves in their files; neither is imported."""

from __future__ import annotations

import ast
import mmap
import os
import re
import stat
from typing import IO

from envcheck.core.model import Assembler, Torch, Triton
from envcheck.guest import elf, shadows

# Nothing stands between the list and what the linker put before it, but a NUL ends it.
_ARCH_LIST = re.compile(rb"(?<![\daf] )sm_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?){1,63} ?\0")
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d+\.\d+), V[\d.]+")
# c10::detail::torchCheckFail(char const*, char const*, unsigned, std::string const&), exported
# by libc10.so under one of two names; which one tells the C++ ABI that torch was built with.
_OLD_ABI = b"_ZN3c106detail14torchCheckFailEPKcS2_jRKSs\0"
_CXX11_ABI = b"_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_string"
_MAX_SOURCE = 1 << 20


def folder(folders: list[str]) -> str | None:
    """Return the folder of `sys.path` from which `import torch` takes it, None without one."""
    return next((f for f in folders if shadows.imported(f, "torch")), None)


def read_torch(site: str) -> Torch | None:
    """Read the PyTorch in a site directory, None when there is none."""
    values = _constants(os.path.join(site, "torch", "version.py"))
    version = values.get("__version__")
    if version is None:
        return None
    return Torch(
        version=version,
        cuda=values.get("cuda"),
        hip=values.get("hip"),
        arch_list=_arch_list(os.path.join(site, "torch", "lib", "libtorch_python.so")),
        cxx11_abi=_cxx11_abi(os.path.join(site, "torch", "lib", "libc10.so")),
    )


def read_triton(site: str, version: str) -> Triton | None:
    """Read the Triton in a site directory, None when there is none."""
    folder = os.path.join(site, "triton", "backends", "nvidia", "bin")
    if not os.path.isdir(os.path.join(site, "triton")):
        return None
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    return Triton(
        version=version,
        assemblers=tuple(
            _assembler(os.path.join(folder, name)) for name in names if name.startswith("ptxas")
        ),
    )


def _assembler(path: str) -> Assembler:
    return Assembler(name=os.path.basename(path), version=_release(path), problem=_problem(path))


def _problem(path: str) -> str | None:
    """Return why nobody can run a program, None where its file does not tell."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            return "is no file"
        if not mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
            return "is not executable"
        with _open(path) as handle:
            if not os.fstat(handle.fileno()).st_size:
                return "is empty"
            view = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
        if view[: len(elf.MAGIC)] == elf.MAGIC:
            elf.read(view)
    except FileNotFoundError:
        return "is a link to nothing"
    except elf.Malformed:
        return "is cut off"
    except (OSError, ValueError):
        return None  # not to be read by this user, which is not to say by nobody
    return None


def _open(path: str) -> IO[bytes]:
    """Open a regular file; anything else is as good as absent."""
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    return open(path, "rb")


def _constants(path: str) -> dict[str, str]:
    """Return the string constants that a module assigns, without running it."""
    try:
        with _open(path) as handle:
            tree = ast.parse(handle.read(_MAX_SOURCE))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.update({t.id: value.value for t in targets if isinstance(t, ast.Name)})
    return found


def _find(path: str, literal: bytes, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """Match `pattern` where `literal` stands: a plain search first, because it is much faster."""
    try:
        with _open(path) as handle:
            view = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return None
    at = view.find(literal)
    while at >= 0:
        match = pattern.match(view, at)
        if match is not None:
            return match
        at = view.find(literal, at + 1)
    return None


def _arch_list(path: str) -> tuple[str, ...]:
    match = _find(path, b"sm_", _ARCH_LIST)
    return tuple(match[0].rstrip(b"\0").decode().split()) if match is not None else ()


def _cxx11_abi(path: str) -> bool | None:
    for symbol, answer in ((_CXX11_ABI, True), (_OLD_ABI, False)):
        if _find(path, symbol, re.compile(re.escape(symbol))) is not None:
            return answer
    return None


def _release(path: str) -> str | None:
    match = _find(path, b"Cuda compilation tools, release", _RELEASE)
    return None if match is None else match[1].decode()
