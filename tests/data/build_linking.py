"""Build small shared objects, each with one thing wrong about what it needs of others.

    python tests/data/build_linking.py FOLDER

makes every fixture below in FOLDER, with the C compiler that is installed. What each stands for
is said at its function; tests call the functions alone.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

CC = shutil.which("cc")


def library(
    path: Path,
    source: str = "",
    *,
    needs: tuple[Path, ...] = (),
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    versions: str | None = None,
    flags: tuple[str, ...] = (),
) -> Path:
    """Compile C into a shared object; what it needs and does not find is left to the loader."""
    assert CC is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [CC, "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", str(path), *flags]
    command += ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-x", "none"]
    command += [f"-Wl,-soname,{path.name if soname is None else soname}"]
    if versions is not None:
        script = path.with_suffix(".map")
        script.write_text(versions)
        command.append(f"-Wl,--version-script={script}")
    if rpath is not None:
        command += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"]
    if runpath is not None:
        command += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"]
    command += map(str, needs)
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return path
