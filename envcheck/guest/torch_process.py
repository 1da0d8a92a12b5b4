"""The process that has imported PyTorch, as far as the loader is concerned.

`import torch` opens libtorch_global_deps.so for all to see, then libraries of CUDA from the
`nvidia` folders so that no other copy of theirs comes first, then `torch/_C`. Which libraries
and when differs between releases, so it is read from torch/__init__.py, which is not run.
"""

from __future__ import annotations

import ast
import fnmatch
import os
from collections.abc import Iterator

from envcheck.guest import torch_facts
from envcheck.guest.loader import Opening, Process
from envcheck.guest.reading import open_regular

_MAX_SOURCE = 1 << 24


def torch_folder(folders: list[str]) -> str | None:
    """Return the folder of the PyTorch that would be imported, if it has libraries."""
    folder = torch_facts.folder(folders)
    if folder is None or not os.path.isdir(os.path.join(folder, "torch", "lib")):
        return None
    return os.path.join(folder, "torch")


def import_torch(process: Process, torch: str, folders: list[str], cuda: str | None) -> Opening:
    """Bring a process to where `torch/_C` is loaded, and return that last load.

    What it maps before is in the process too; a load that fails leaves it as it was.
    """
    always, on_failure = preloads(_source(torch))
    dependencies = os.path.join(torch, "lib", "libtorch_global_deps.so")
    if os.path.exists(dependencies):
        opening = attempt(process, dependencies, to_all=True)
        wanted = on_failure if opening.missed else always
        if opening.missed or any(n.startswith("libcudart.so") for n in process.names):
            for folder, pattern in wanted:
                path = _find(folders, folder, pattern, cuda)
                if path is not None:
                    attempt(process, path)
        if opening.missed:
            attempt(process, dependencies, to_all=True)
    modules = sorted(n for n in os.listdir(torch) if n.startswith("_C.") and n.endswith(".so"))
    if not modules:
        return Opening(None, reason="torch has no _C")
    return process.open(os.path.join(torch, modules[0]))


def attempt(process: Process, name: str, *, to_all: bool = False) -> Opening:
    """Open a file, and take it back where that fails, as dlopen does."""
    trial = process.fork()
    opening = trial.open(name, to_all=to_all)
    if opening.root is not None and not opening.missed:
        process.adopt(trial)
    return opening


def preloads(source: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the (folder, pattern) pairs that are opened always, and those after a failure.

    They stand in `_load_global_deps`, in the try around the first load and in its handler,
    or in a function that is called there.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [], []
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    start = functions.get("_load_global_deps")
    if start is None:
        return [], []
    outer = next((n for n in start.body if isinstance(n, ast.Try)), None)
    if outer is None:
        return [], []
    always = [pair for node in outer.body for pair in _pairs(node, functions)]
    failing = [pair for node in outer.handlers for pair in _pairs(node, functions)]
    return list(dict.fromkeys(always)), list(dict.fromkeys(failing))


def _pairs(node: ast.AST, functions: dict[str, ast.FunctionDef]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a block, and of the functions that it calls, in order."""
    for inner in _in_order(node):
        if isinstance(inner, ast.Dict):
            for key, value in zip(inner.keys, inner.values, strict=True):
                yield from _pair([key, value])
        elif isinstance(inner, ast.Tuple):
            yield from _pair(inner.elts)
        elif isinstance(inner, ast.Call):
            yield from _pair(inner.args[:2])
            called = inner.func.id if isinstance(inner.func, ast.Name) else ""
            if called in functions:
                rest = {k: v for k, v in functions.items() if k != called}
                yield from _pairs(functions[called], rest)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    left = [node]
    while left:
        yield (one := left.pop())
        left += reversed(list(ast.iter_child_nodes(one)))


def _pair(nodes: list[ast.expr] | list[ast.expr | None]) -> Iterator[tuple[str, str]]:
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if len(nodes) == len(texts) == 2 and texts[1].startswith("lib") and ".so" in texts[1]:
        yield texts[0], texts[1]


def _find(folders: list[str], folder: str, pattern: str, cuda: str | None) -> str | None:
    """Return the library that torch would open, in the first folder of sys.path that has one."""
    major = (cuda or "").partition(".")[0]
    inner = [("nvidia", folder, "lib"), (folder, "lib")]
    if major:
        inner.insert(1, ("nvidia", f"cu{major}", "lib"))
    for site in folders:
        for parts in inner:
            where = os.path.join(site, *parts)
            try:
                names = sorted(fnmatch.filter(os.listdir(where), pattern))
            except OSError:
                continue
            if names:
                return os.path.join(where, names[0])
    return None


def _source(torch: str) -> str:
    try:
        with open_regular(os.path.join(torch, "__init__.py")) as handle:
            return (handle.read(_MAX_SOURCE) or b"").decode("utf-8", "replace")
    except OSError:
        return ""
