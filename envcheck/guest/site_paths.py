"""The `sys.path` that an interpreter would give a job, worked out without running `site`.

`site` executes the `import` lines of `.pth` files and imports `sitecustomize`: code of the
environment that is looked at. So the guest is started with `-S`, and what `site` would have
added is read from where it reads it: PYTHONPATH, pyvenv.cfg, the site directories of the
prefixes, and the lines of `.pth` files that name folders.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig

_MAX_PTH = 1 << 20


def job_path(started_with: list[str]) -> list[str]:
    """Return the folders of `sys.path` for a job of this interpreter, in its order.

    `started_with` is `sys.path` as `-S` left it: the standard library.
    """
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [os.path.abspath(p) for p in named if p] + started_with
    for folder in _site_folders():
        if os.path.isdir(folder):
            folders.append(folder)
            folders += _of_pth_files(folder)
    return list(dict.fromkeys(folders))


def site_folders(path: list[str]) -> list[str]:
    """Return the folders of `sys.path` that hold packages, without the standard library."""
    standard = {
        os.path.realpath(p) for key in ("stdlib", "platstdlib") if (p := sysconfig.get_path(key))
    }
    standard |= {os.path.join(p, "lib-dynload") for p in standard}
    seen: dict[str, None] = {}
    for entry in path:
        real = os.path.realpath(entry)
        if entry and os.path.isdir(real) and real not in standard:
            seen.setdefault(real)
    return list(seen)


def _site_folders() -> list[str]:
    config = _pyvenv_config()
    if config is None:
        return [*_user(), *site.getsitepackages([sys.base_prefix, sys.base_exec_prefix])]
    # Not getsitepackages: Debian's names dist-packages unless `site` has set sys.prefix.
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    libraries = dict.fromkeys((sys.platlibdir, "lib"))
    own = [os.path.join(_venv(), name, version, "site-packages") for name in libraries]
    if config.get("include-system-site-packages", "").lower() == "true":
        own += [*_user(), *site.getsitepackages([sys.base_prefix, sys.base_exec_prefix])]
    return own


def _venv() -> str:
    """Return the folder of the virtual environment that the interpreter would be in."""
    # Not resolved: the interpreter of a venv is a link to the one it was made from.
    return os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))


def _pyvenv_config() -> dict[str, str] | None:
    """Return the keys of pyvenv.cfg, which lies beside the interpreter or above it."""
    beside = os.path.dirname(os.path.abspath(sys.executable))
    for folder in (beside, os.path.dirname(beside)):
        try:
            with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8") as handle:
                lines = handle.read(_MAX_PTH).splitlines()
        except (OSError, ValueError):
            continue
        pairs = (line.partition("=") for line in lines)
        return {key.strip().lower(): value.strip() for key, mark, value in pairs if mark}
    return None


def _user() -> list[str]:
    if os.environ.get("PYTHONNOUSERSITE") or not site.check_enableusersite():
        return []
    return [site.getusersitepackages()]


def _of_pth_files(folder: str) -> list[str]:
    """Return the folders that the `.pth` files of a site directory add; runs none of them."""
    found = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".pth") or name.startswith("."):
            continue
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as handle:
                lines = handle.read(_MAX_PTH).splitlines()
        except OSError:
            continue
        for line in map(str.rstrip, lines):
            if line and not line.startswith(("#", "import ", "import\t")):
                path = os.path.normpath(os.path.join(folder, line))
                if os.path.isdir(path):
                    found.append(path)
    return found
