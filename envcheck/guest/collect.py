"""One environment, read from its files: distributions, torch, triton, and where code lies."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Iterator

from envcheck.core.distribution import Distribution
from envcheck.core.model import Environment
from envcheck.core.names import visible
from envcheck.core.request import Collected, Place
from envcheck.core.variables import HIDDEN, OF_A_JOB
from envcheck.guest import (
    artefacts,
    cuda_compat,
    distributions,
    editable,
    installed,
    linking,
    nvidia_module,
    site_paths,
    tools,
    torch_facts,
)

_SKIPPED_FOLDERS = frozenset({"__pycache__", ".git", "node_modules", ".venv", "venv"})


def collect(path: list[str], *, read: bool) -> Collected:
    """Read the environment whose `sys.path` this is; imports nothing of it.

    With `read` its compiled files are read here too, else the host is told where they lie.
    """
    folders = site_paths.site_folders(path)
    found = distributions.read_all(folders)
    metadata = installed.read(folders)
    roots = editable.roots(folders)
    folders = list(roots)
    site = torch_facts.folder(folders)
    torch = torch_facts.read_torch(site) if site is not None else None
    versions = {d.name: d.version for d in found}
    triton = versions.get("triton") or versions.get("pytorch-triton")
    tritons = [torch_facts.read_triton(f, triton) for f in folders] if triton else []
    cuda = torch.cuda if torch is not None else None
    environment = Environment(
        python=platform.python_version(),
        implementation=sys.implementation.name,
        platform=sysconfig.get_platform(),
        libc=" ".join(platform.libc_ver()).strip() or "unknown",
        digest=distributions.environment_digest(found),
        distributions=found,
        torch=torch,
        triton=next((t for t in tritons if t is not None), None),
        driver=nvidia_module.version(),
        compat=cuda_compat.versions(),
        variables=_variables(),
        installed=metadata,
        tools=tools.look(cuda=cuda),
        caches=artefacts.of_job(cuda=cuda),
    )
    places = tuple(_places(roots, found))
    linked = linking.link(sys.executable, places, folders, cuda=cuda)
    if not read:
        return Collected(environment=environment, places=places, linked=linked)
    from envcheck.guest.inflate import inflate  # half of what there is to import
    from envcheck.guest.reading import read_place

    files = tuple(read_place(p.absolute, p.path, inflate) for p in places)
    return Collected(environment=environment, files=files, linked=linked)


def _variables() -> dict[str, str]:
    """Return those variables that a job would have too, which a mask of our own is not."""
    found = {k: os.environ[k] for k in OF_A_JOB if k in os.environ}
    return {k: v for k, v in found.items() if HIDDEN not in os.environ or "VISIBLE" not in k}


def _places(roots: editable.Roots, found: tuple[Distribution, ...]) -> Iterator[Place]:
    """Yield every compiled file that a job could load, under its path below its folder.

    A package in a later folder that an earlier one has too is never imported, so its files
    are not there.
    """
    seen: set[str] = set()
    packages: set[str] = set()
    for folder, names in roots.items():
        inner = {f for f in roots if f != folder}
        for absolute in _walk(folder, inner, names):
            path = os.path.relpath(absolute, folder)
            if path not in seen and path.partition(os.sep)[0] not in packages:
                seen.add(path)
                yield Place(path=visible(path), absolute=absolute)
        here = _packages(folder)
        packages |= here if names is None else here & names
        outside = {p for d in found for p in d.files if p.startswith("..")} - seen
        for path in sorted(outside):
            absolute = os.path.normpath(os.path.join(folder, path))
            if os.path.isfile(absolute):
                seen.add(path)
                yield Place(path=path, absolute=absolute)


def _packages(folder: str) -> set[str]:
    """Return the regular packages of a folder; those without __init__ merge across folders."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return set()
    return {n for n in names if os.path.isfile(os.path.join(folder, n, "__init__.py"))}


def _walk(folder: str, others: set[str], only: frozenset[str] | None) -> Iterator[str]:
    """Yield the compiled files below a folder, and the folders there that cannot be read.

    `only` are the names in the folder itself that count, None for all.

    Links are followed, for some installers link whole packages, but each folder is read once
    and none that holds this one.
    """
    errors: list[OSError] = []
    visited = {*others, *_ancestors(folder)}
    reals = {folder: folder}
    for where, folders, names in os.walk(folder, followlinks=True, onerror=errors.append):
        if where == folder and only is not None:
            folders[:] = [name for name in folders if name in only]
            names[:] = [name for name in names if name in only]
        kept = []
        for name in sorted(folders):
            path = os.path.join(where, name)
            link = os.path.islink(path)
            real = os.path.realpath(path) if link else os.path.join(reals[where], name)
            alias = real in visited or (link and real.startswith(folder + os.sep))
            if name not in _SKIPPED_FOLDERS and not alias:
                visited.add(real)
                reals[path] = real
                kept.append(name)
        folders[:] = kept
        for name in sorted(filter(distributions.is_compiled, names)):
            path = os.path.join(where, name)
            inside = os.path.islink(path) and os.path.realpath(path).startswith(folder + os.sep)
            if not inside:
                yield path
    yield from (error.filename for error in errors)


def _ancestors(folder: str) -> Iterator[str]:
    while folder != (folder := os.path.dirname(folder)):
        yield folder
