"""Build wheels, environments and archives by hand, from samples whose behaviour is known."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

DATA = Path(__file__).parent / "data"
OBJECTS = DATA / "truth" / "objects"

# What an H200 (sm_90) did with these stands in data/truth/h200.json; for other cards the
# rule is NVIDIA's: same major and no higher minor, or PTX of an equal or older target.
SM80 = OBJECTS / "nordc_s80.so"
SM80_PTX80 = OBJECTS / "nordc_s80p80.so"
SM89_SM120 = OBJECTS / "cu13.0__sass_89+120.fatbin"
SM90 = OBJECTS / "cu13.0__sass_90.fatbin"
SM120_LIBRARY = DATA / "truth-extra" / "objects" / "cu12.8_s120.so"


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    requires: tuple[str, ...] = (),
    record: bool = True,
) -> Path:
    """Write a wheel as the specification says, with hashes in RECORD."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    if record:
        lines = io.StringIO()
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerows([path, _hash(data), len(data)] for path, data in whole.items())
        rows.writerow([f"{info}/RECORD", "", ""])
        whole[f"{info}/RECORD"] = lines.getvalue().encode()
    path = folder / f"{stem}-py3-none-any.whl"
    path.write_bytes(zipped(whole))
    return path


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip of members, in order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    """Return a tar of members, in order; `mode` such as `w:gz` compresses it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def venv(folder: Path, *wheels: Path, python: str = sys.executable) -> Path:
    """Make an environment without pip, with wheels unpacked into it; return its folder."""
    command = [python, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    for path in wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(site(folder))
    return folder


def site(environment: Path) -> Path:
    """Return where an environment keeps its packages."""
    (found,) = environment.glob("lib/python3*/site-packages")
    return found
