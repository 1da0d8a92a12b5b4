"""Build each extension into a wheel; one that fails does not hide the others.

Sources lie in folders below /run/build/sources; `extensions.lock` beside them names released ones,
with hashes. Wheels go to /opt/toolchain/wheels, and what became of each
extension to /opt/toolchain/extensions.json: name, ok, seconds, and the end of what was said.
"""
# ruff: noqa: INP001 - a step of a Dockerfile, not a module of the package

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment  # noqa: E402

_PLACE = Path("/opt/toolchain")
_DEADLINE = 3600
_TAIL = 30
_CAUSES = 10
_FLAGS = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(_PLACE / "wheels"))


def main() -> None:
    """Build everything there is, in a fixed order."""
    # Build tools write beside what they read, and a fixed place keeps the result repeatable.
    sources = _PLACE / "sources"
    shutil.copytree("/run/build/sources", sources)
    with tempfile.TemporaryDirectory() as folder:
        environment.make_pip(folder)
        folders = sorted(path for path in sources.iterdir() if path.is_dir())
        built = [build(folder, path.name, str(path)) for path in folders]
        lock = sources / "extensions.lock"
        for line in requirements(lock.read_text(encoding="utf-8")) if lock.exists() else ():
            single = Path(folder, "single.lock")
            single.write_text(line + "\n", encoding="utf-8")
            built.append(build(folder, line.split("==")[0], "--require-hashes", "-r", str(single)))
    document = json.dumps(built, indent=2, sort_keys=True)
    (_PLACE / "extensions.json").write_text(document + "\n", encoding="utf-8")


def build(folder: str, name: str, *what: str) -> dict[str, object]:
    """Build one wheel; returns what became of it."""
    start = time.monotonic()
    command = environment.pip_command("wheel", *_FLAGS, *what)
    try:
        done = subprocess.run(  # noqa: S603
            command,
            check=False,
            env=environment.pip_variables(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DEADLINE,
        )
        code, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, said = -1, (error.stdout or b"") + b"\nended: it took more than an hour"
    sys.stdout.buffer.write(said)
    tail = excerpt(said.decode("utf-8", "replace").splitlines()) if code else []
    seconds = round(time.monotonic() - start, 1)
    return {"name": name, "ok": code == 0, "seconds": seconds, "tail": tail}


def excerpt(lines: list[str]) -> list[str]:
    """Return what compilers called an error, and the end: setuptools buries the one in the other."""
    cause = re.compile(r"\b(fatal )?error\b ?[:#]|undefined reference|not found", re.IGNORECASE)
    causes = [line for line in lines[:-_TAIL] if cause.search(line)]
    return [*causes[:_CAUSES], *lines[-_TAIL:]]


def requirements(text: str) -> list[str]:
    """Return the requirements of a lock, each with its hashes on one line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


if __name__ == "__main__":
    main()
