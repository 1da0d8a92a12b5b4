"""The process in which JAX's CUDA plugin asks for its libraries, as far as the loader is concerned.

`initialize` of jax_plugins/xla_cuda12 and 13 opens them from the `nvidia` folders and passes over
what is not there; then jax_cuda12_plugin/_versions.so asks for them by the same names, and takes the
system's. Both were watched with LD_DEBUG in jax 0.10.2. The names stand in the plugin's
source, which is read and not run.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator

from envcheck.core.linking import ByName
from envcheck.guest.loader import Loaded, Process
from envcheck.guest.reading import open_regular
from envcheck.guest.torch_process import attempt

_MAX_SOURCE = 1 << 20
_MAJORS = ("12", "13")
_OTHER_NAME = {"libcupti": "libcupti.so"}
"""What is asked for next, where nothing has the name with its number."""


def asked(bare: Process, folders: list[str], show: Callable[[str], str]) -> Iterator[ByName]:
    """Yield what the plugins that are there ask for by name, as the loader resolves it."""
    for major in _MAJORS:
        source = _first(folders, "jax_plugins", f"xla_cuda{major}", "__init__.py")
        module = _first(folders, f"jax_cuda{major}_plugin", "_versions.so")
        if source is None or module is None:
            continue
        process = bare.fork()
        pairs = names(source, major)
        for folder, name in pairs:
            # It takes the first folder of that name, whether the library lies in it or not.
            home = _first(folders, "nvidia", folder)
            if home is not None:
                attempt(process, os.path.join(home, "lib", name))
        opener = process.open(module).root
        if opener is not None:
            for _, name in pairs:
                yield _resolve(process, opener, name, show)


def names(source: str, major: str) -> list[tuple[str, str]]:
    """Return folder and library of each call of `_load`, but for those of other majors of CUDA.

    From CUDA 13 on most lie in one folder, which the source names beside those of CUDA 12.
    """
    found = list(dict.fromkeys(_calls(source)))
    own = [(folder, name) for folder, name in found if folder == f"cu{major}"]
    stems = {name.partition(".")[0] for _, name in own}
    rest = [
        (folder, name)
        for folder, name in found
        if not folder.removeprefix("cu").isdecimal() and name.partition(".")[0] not in stems
    ]
    return own + rest


def _calls(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open_regular(path) as handle:
            tree = ast.parse((handle.read(_MAX_SOURCE) or b"").decode("utf-8", "replace"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the files of the plugin are compared with its RECORD
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "_load"
            and len(node.args) == 2
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[1], ast.List)
        ):
            for one in node.args[1].elts:
                if isinstance(one, ast.Constant):
                    yield str(node.args[0].value), str(one.value)


def _resolve(process: Process, opener: Loaded, name: str, show: Callable[[str], str]) -> ByName:
    other = _OTHER_NAME.get(name.partition(".")[0])
    for wanted in (name, *((other,) if other else ())):
        opening = process.fork().open(wanted, caller=opener)
        root = opening.root
        if root is not None and not opening.missed:
            return ByName(
                name=name, opener=show(opener.file.real), path=show(root.file.real), how=root.how
            )
    return ByName(name=name, opener=show(opener.file.real))


def _first(folders: list[str], *parts: str) -> str | None:
    """Return a file or folder where the first folder of sys.path has it."""
    paths = (os.path.join(folder, *parts) for folder in folders)
    return next((path for path in paths if os.path.exists(path)), None)
