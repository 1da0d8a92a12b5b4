"""Builds small installed packages, as an installer would leave them: dist-info, RECORD, files."""

from __future__ import annotations

import base64
import csv
import hashlib
from pathlib import Path


def row(path: str, data: bytes) -> tuple[str, str, str]:
    """Return the row of RECORD that the wheel specification asks for."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return path, f"sha256={digest}", str(len(data))


def install(
    site: Path,
    name: str,
    version: str = "1.0",
    *,
    requires: tuple[str, ...] = (),
    requires_python: str | None = None,
    tags: tuple[str, ...] = ("py3-none-any",),
    files: dict[str, bytes] | None = None,
) -> Path:
    """Install a package into a site directory; files that are there already are overwritten."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {line}\n" for line in requires]
    metadata += [f"Requires-Python: {requires_python}\n"] if requires_python else []
    wheel = "Wheel-Version: 1.0\n" + "".join(f"Tag: {tag}\n" for tag in tags)
    every = {
        **(files or {}),
        f"{info.name}/METADATA": "".join([*metadata, "\nA readme.\nRequires-Dist: no\n"]).encode(),
        f"{info.name}/WHEEL": wheel.encode(),
        f"{info.name}/INSTALLER": b"pip\n",
    }
    for path, data in every.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    with (info / "RECORD").open("w", encoding="utf-8", newline="") as record:
        writer = csv.writer(record, lineterminator="\n")
        writer.writerows(row(path, data) for path, data in every.items())
        writer.writerow((f"{info.name}/RECORD", "", ""))
    return info


NUMPY_1 = (
    b"\x7fELF numpy.core._multiarray_umath\0_ARRAY_API\0"
    b"module compiled against ABI version 0x%x but this version of numpy is 0x%x\0"
    b"module compiled against API version 0x%x but this version of numpy is 0x%x . \0"
)
"""The texts that import_array() of NumPy 1.26.4's headers leaves in a module."""

NUMPY_2 = (
    b"\x7fELF numpy._core._multiarray_umath\0numpy.core._multiarray_umath\0_ARRAY_API\0"
    b"module compiled against ABI version 0x%x but this version of numpy is 0x%x\0"
    b"module was compiled against NumPy C-API version 0x%x (NumPy 1.23) but the running NumPy"
    b" has C-API version 0x%x. \0"
)
"""Those of NumPy 2.4.6's headers, for NumPy 1.23 and newer."""
