"""Stage what the guest needs into one folder: core, guest, and nothing else of envcheck."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

_PARTS = ("__init__.py", "errors.py", "core", "guest")


def digest() -> str:
    """Return a digest of everything that the guest is made of, as hexadecimal SHA-256."""
    package = Path(__file__).parent
    total = hashlib.sha256()
    for name in _PARTS:
        part = package / name
        for path in sorted(part.rglob("*.py")) if part.is_dir() else (part,):
            place = path.relative_to(package).as_posix()
            total.update(f"{place}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


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
