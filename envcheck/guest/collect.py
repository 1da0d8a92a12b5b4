"""One environment, read from its files: distributions, torch, triton, and where code lies."""

from __future__ import annotations

import os
import platform
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass

from envcheck.core.model import Distribution, Environment
from envcheck.guest import distributions, torch_facts

COLLECTED_SCHEMA = "envcheck/collected/v1"
_VARIABLES = ("BNB_CUDA_VERSION",)
_SKIPPED_FOLDERS = frozenset({"__pycache__", ".git", "node_modules", ".venv", "venv"})
_DRIVER = "/proc/driver/nvidia/version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one compiled file lies."""

    path: str
    """Relative to its site directory: the same on every machine."""
    absolute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What the guest hands to the host."""

    schema: str = COLLECTED_SCHEMA
    environment: Environment
    places: tuple[Place, ...]


def collect() -> Collected:
    """Read the environment of the interpreter that runs this; imports nothing of it."""
    folders = site_folders(sys.path)
    found = distributions.read_all(folders)
    torches = [t for t in map(torch_facts.read_torch, folders) if t is not None]
    versions = {d.name: d.version for d in found}
    triton = versions.get("triton") or versions.get("pytorch-triton")
    tritons = [torch_facts.read_triton(f, triton) for f in folders] if triton else []
    environment = Environment(
        python=platform.python_version(),
        implementation=sys.implementation.name,
        platform=sysconfig.get_platform(),
        libc=" ".join(platform.libc_ver()).strip() or "unknown",
        digest=distributions.environment_digest(found),
        distributions=found,
        torch=torches[0] if torches else None,
        triton=next((t for t in tritons if t is not None), None),
        driver=_driver(),
        variables={k: os.environ[k] for k in _VARIABLES if k in os.environ},
    )
    return Collected(environment=environment, places=tuple(_places(folders, found)))


def site_folders(path: list[str]) -> list[str]:
    """Return the folders of `sys.path` that hold packages, without the standard library."""
    standard = {
        os.path.realpath(p) for key in ("stdlib", "platstdlib") if (p := sysconfig.get_path(key))
    }
    standard |= {os.path.join(p, "lib-dynload") for p in standard}
    known = {os.path.realpath(p) for p in (*site.getsitepackages(), site.getusersitepackages())}
    seen: dict[str, None] = {}
    for entry in path:
        real = os.path.realpath(entry)
        if entry and os.path.isdir(real) and (real in known or real not in standard):
            seen.setdefault(real)
    return list(seen)


def _places(folders: list[str], found: tuple[Distribution, ...]) -> Iterator[Place]:
    """Yield every compiled file once, under its path relative to the first folder that has it."""
    seen: set[str] = set()
    for folder in folders:
        inner = [f for f in folders if f != folder and f.startswith(folder + os.sep)]
        for absolute in _walk(folder, inner):
            path = os.path.relpath(absolute, folder).replace(os.sep, "/")
            yield Place(path=absolute if path in seen else path, absolute=absolute)
            seen.add(path)
        for path in {p for d in found for p in d.files if p.startswith("..")} - seen:
            absolute = os.path.normpath(os.path.join(folder, path))
            if os.path.isfile(absolute):
                seen.add(path)
                yield Place(path=path, absolute=absolute)


def _walk(folder: str, inner: list[str]) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if f not in _SKIPPED_FOLDERS and os.path.join(where, f) not in inner
        )
        for name in sorted(names):
            if not distributions.is_compiled(name):
                continue
            path = os.path.join(where, name)
            if not os.path.islink(path) or not os.path.realpath(path).startswith(folder + os.sep):
                yield path


def _driver() -> str | None:
    """Return the version of the NVIDIA kernel driver of this machine, None without one."""
    try:
        with open(_DRIVER, encoding="ascii", errors="replace") as handle:
            match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", handle.read(4096))
    except OSError:
        return None
    return match[1] if match is not None else None
