"""What hides the standard library from the interpreter that runs envcheck: two variables can."""

from __future__ import annotations

import os
import sys


def remedy(error: Exception) -> str | None:
    """Return what to change before an error of envcheck's own counts as one, None for nothing."""
    home = os.environ.get("PYTHONHOME")
    if home and isinstance(error, ImportError) and error.name in sys.stdlib_module_names:
        return f"unset PYTHONHOME: the library in {home} is not that of {sys.executable}"
    hiding = _hiding()
    if hiding is None:
        return None
    module = os.path.basename(hiding).removesuffix(".py")
    return f"rename {hiding} or leave its folder out of PYTHONPATH: it hides Python's own {module}"


def _hiding() -> str | None:
    """Return the first file or package that is imported in place of the standard library's."""
    library = os.path.realpath(os.path.dirname(os.__file__))
    for folder in sys.path:
        if os.path.realpath(folder) == library:
            return None
        try:
            names = sorted(os.listdir(folder or os.curdir))
        except OSError:
            continue  # not there, or the library's archive
        for name in names:
            path = os.path.join(folder or os.getcwd(), name)
            file = path if name.endswith(".py") else os.path.join(path, "__init__.py")
            if name.removesuffix(".py") in sys.stdlib_module_names and os.path.isfile(file):
                return path
    return None
