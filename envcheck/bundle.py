"""Stage what the guest needs into one folder: core, guest, and nothing else of envcheck."""

from __future__ import annotations

import shutil
from pathlib import Path

_PARTS = ("__init__.py", "errors.py", "core", "guest")


def stage(folder: Path) -> Path:
    """Copy the guest's modules below `folder`; returns the path of its entry point."""
    package = Path(__file__).parent
    target = folder / "envcheck"
    target.mkdir(parents=True)
    for name in _PARTS:
        if (package / name).is_dir():
            shutil.copytree(
                package / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(package / name, target / name)
    return target / "guest" / "__main__.py"
