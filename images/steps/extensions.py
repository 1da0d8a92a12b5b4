"""Build each extension into a wheel; one that fails does not hide the others.

Sources lie in folders, named for what is imported; `extensions.lock` beside them names released
ones, with hashes. Wheels go to the toolchain's folder, and what became of each extension to
extensions.json in it: name, ok, seconds, and the end of what was said. Before and after each
a line `[extension NAME] ...` is printed.
"""
# ruff: noqa: INP001, T201 - a step of a Dockerfile, not a module of the package

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment  # noqa: E402

_PLACE = Path(environment.TOOLCHAIN)
_DEADLINE = 3600
_TAIL = 30
_CAUSES = 10
# A cached wheel may have been built for another card.
_FLAGS = ("--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation")


def main() -> None:
    """Build everything there is, in a fixed order."""
    signal.signal(signal.SIGALRM, too_late)
    # Compilers speak UTF-8, whatever the terminal's encoding is.
    sys.stdout.reconfigure(errors="backslashreplace")
    # Build tools write beside what they read, and a fixed place keeps the result repeatable.
    sources = _PLACE / "sources"
    shutil.copytree(environment.SOURCES, sources, symlinks=True)
    with tempfile.TemporaryDirectory() as folder:
        environment.make_pip(folder)
        folders = sorted(path for path in sources.iterdir() if path.is_dir())
        built = [build(folder, path.name, str(path)) for path in folders]
        lock = sources / "extensions.lock"
        for line in requirements(lock.read_text(encoding="utf-8")) if lock.exists() else ():
            name, single = line.split("==")[0].strip(), Path(folder, "single.lock")
            single.write_text(line + "\n", encoding="utf-8")
            built.append(build(folder, name, "--require-hashes", "-r", str(single)))
    document = json.dumps(built, indent=2, sort_keys=True)
    (_PLACE / "extensions.json").write_text(document + "\n", encoding="utf-8")


def build(folder: str, name: str, *what: str) -> dict[str, object]:
    """Build one wheel; returns what became of it."""
    start = time.monotonic()
    say(name, "is being built")
    variables = environment.pip_variables(folder)
    # Symbols that no loader reads hold the number of nvcc's process, another one each time.
    variables["LDFLAGS"] = f"{variables.get('LDFLAGS', '')} -Wl,--strip-all".strip()
    command = environment.pip_command("wheel", *_FLAGS, "--wheel-dir", str(_PLACE / "wheels"))
    with subprocess.Popen(  # noqa: S603
        [*command, *what],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        lines = []
        try:
            signal.alarm(_DEADLINE)
            for raw in process.stdout or ():
                lines.append(clean(raw.decode("utf-8", "replace")))
                print(lines[-1], flush=True)
        except TimeoutError:
            lines.append(f"ended: it took more than {_DEADLINE} s")
            end_all()
            process.kill()
        finally:
            signal.alarm(0)
    seconds = round(time.monotonic() - start, 1)
    ok = process.returncode == 0
    say(name, f"{'built' if ok else 'failed'} after {seconds} s")
    return {"name": name, "ok": ok, "seconds": seconds, "tail": [] if ok else excerpt(lines)}


def clean(line: str) -> str:
    """Return a line without its end and without the credentials of an address."""
    return re.sub(r"(?<=://)[^/@\s]+@", "***@", line.rstrip("\r\n"))


def say(name: str, what: str) -> None:
    """Print a line that tells where the build is."""
    print(f"[extension {name}] {what}", flush=True)


def too_late(*_: object) -> None:
    """Leave whatever waits, in answer to the alarm."""
    raise TimeoutError


def end_all() -> None:
    """End the build with every compiler it started: they are in the group of this process."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def excerpt(lines: list[str]) -> list[str]:
    """Return what compilers called an error, and the end: setuptools buries the one in the other.

    Not where pip looked: an address of one's own network has no place in a manifest.
    """
    lines = [line for line in lines if not line.lstrip().startswith("Looking in ")]
    cause = re.compile(r"\b(fatal )?error\b ?[:#]|undefined reference|not found", re.IGNORECASE)
    causes = [line for line in lines[:-_TAIL] if cause.search(line)]
    return [*causes[:_CAUSES], *lines[-_TAIL:]]


def requirements(text: str) -> list[str]:
    """Return the requirements of a lock, each with its hashes on one line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


if __name__ == "__main__":
    main()
