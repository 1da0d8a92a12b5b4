"""Measure the whole static check of an environment, beside what others find in the same files.

    python tests/bench/static_bench.py --environment VENV [--wheels FOLDER] [--fill BASE]

Run by hand, on a quiet machine. With --fill the environment is made first: a copy of BASE, a venv
with PyTorch for CUDA, by hard links, and over it what distributions.txt pins, by uv. The peers: `pip check` of that environment, `ldd -r` over all of
its compiled files, and `auditwheel show` of each wheel in FOLDER where auditwheel is installed.
Prints a Markdown table: time, time of the processors, peak memory, and what each finds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ENVCHECK = str(Path(sys.executable).with_name("envcheck"))


def fill(base: Path, environment: Path) -> None:
    """Make an environment of hundreds of distributions; what is installed replaces links."""
    if environment.exists():
        sys.exit(f"{environment} is there already")
    subprocess.run(["cp", "-al", base, environment], check=True)
    uv, pins = Path(sys.executable).with_name("uv"), Path(__file__).with_name("distributions.txt")
    python = environment / "bin" / "python"
    words = ("--no-deps", "--only-binary", ":all:", "--link-mode", "copy", "-r", pins)
    subprocess.run([uv, "pip", "install", "-q", "--python", python, *words], check=True)


def timed(*words: str | Path) -> tuple[float, float, float, subprocess.CompletedProcess[str]]:
    """Run a command; returns its seconds, those of processors, peak memory in MB, what it said."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    before = usage.ru_maxrss
    started = time.monotonic()
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, errors="replace", check=False
    )
    seconds = time.monotonic() - started
    # The largest child so far: only a larger one than all before it is seen, which is what runs first.
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return seconds, busy, max(before, after.ru_maxrss) / 1024, done


def compiled(environment: Path) -> list[Path]:
    """Return the shared objects of an environment, each once."""
    found = (p for p in environment.rglob("*.so*") if re.search(r"\.so(\.\d+)*$", p.name))
    return [p for p in found if p.is_file() and not p.is_symlink()]


def ours(environment: Path) -> None:
    """Measure the check, three times, and print the quickest."""
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder, "inventory.json")
        words = (ENVCHECK, "check", "--python", environment, "--arch", "blackwell")
        more = ("--format", "json", "--save-inventory", inventory)
        measured = min((timed(*words, *more) for _ in range(3)), key=lambda m: m[0])
        size = inventory.stat().st_size
    seconds, busy, peak, done = measured
    report = json.loads(done.stdout)
    counts = Counter(f["status"] for f in report["findings"])
    found = ", ".join(f"{counts[s]} {s}" for s in ("fail", "error", "warn", "pass"))
    what = f"{report['verdict']}: {found}; inventory {size / 1e6:.1f} MB"
    print(f"| `envcheck check`, warm | {seconds:.2f} s | {busy:.2f} s | {peak:.0f} MB | {what} |")


def pip_check(environment: Path) -> None:
    """Measure `pip check` in the environment."""
    seconds, busy, _, done = timed(environment / "bin" / "python", "-m", "pip", "check")
    lines = [
        line for line in done.stdout.splitlines() if "has requirement" in line or "requires" in line
    ]
    print(f"| `pip check` | {seconds:.2f} s | {busy:.2f} s | | {len(lines)} unmet requirements |")


def ldd(environment: Path) -> None:
    """Measure `ldd -r` over all compiled files, as anybody would run it: file by file."""
    missing = undefined = 0
    files, started = compiled(environment), time.monotonic()
    for path in files:
        done = subprocess.run(
            ["ldd", "-r", path], capture_output=True, text=True, errors="replace", check=False
        )
        said = done.stdout + done.stderr
        missing += "not found" in said
        undefined += "undefined symbol" in said
    seconds = time.monotonic() - started
    what = f"{missing} of {len(files)} files with a library not found, {undefined} with undefined symbols"
    print(
        f"| `ldd -r`, file by file | {seconds:.1f} s | | | {what} (modules of Python have some by design) |"
    )


def auditwheel(wheels: Path) -> None:
    """Measure `auditwheel show` of each wheel."""
    program = shutil.which(
        "auditwheel", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    if program is None:
        print("| `auditwheel show` | | | | is not installed |")
        return
    for wheel in sorted(wheels.glob("*.whl")):
        seconds, busy, _, done = timed(program, "show", wheel)
        said = " ".join(done.stdout.split())
        tag = re.search(r'"(manylinux\w+|linux\w+|musllinux\w+)"', said)
        print(
            f"| `auditwheel show {wheel.name[:40]}` | {seconds:.1f} s | {busy:.1f} s | | "
            f"{tag[1] if tag else said[:80]} |"
        )


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--environment", type=Path, required=True)
    options.add_argument("--wheels", type=Path)
    options.add_argument("--fill", type=Path, metavar="BASE")
    given = options.parse_args()
    if given.fill is not None:
        fill(given.fill, given.environment)
    print("| what | time | processors | memory | finds |\n|---|---|---|---|---|")
    ours(given.environment)
    pip_check(given.environment)
    ldd(given.environment)
    if given.wheels is not None:
        auditwheel(given.wheels)


if __name__ == "__main__":
    main()
