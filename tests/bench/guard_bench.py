"""Measure what `envcheck guard` takes before it becomes the job, and what `--deep` adds.

    python tests/bench/guard_bench.py [--distributions 400] [--files 50] [--environment VENV]

Run by hand, on a quiet machine. Without --environment one is made: distributions of Python
modules, of which every tenth has a file with device code. The job is `true`, whose own start is taken off; what envcheck and
the guest took of the processors stands beside it, since that does not depend on other work.
Prints a Markdown table; medians of eleven.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVCHECK = str(Path(sys.executable).with_name("envcheck"))
SAMPLE = Path(__file__).parents[1] / "data" / "truth" / "objects" / "nordc_s80p80.so"
TIMES = 11


def install(site: Path, number: int, files: int) -> None:
    """Write one distribution as an installer would: with bytecode in RECORD, and a readme."""
    name, rows = f"package{number:03d}", []
    (site / name).mkdir()
    for index in range(files):
        compiled = not index and number % 10 == 0
        module = f"{name}/_C.so" if compiled else f"{name}/module{index}.py"
        data = SAMPLE.read_bytes() if compiled else f"x = {number * index}\n".encode() * 40
        (site / module).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{module},sha256={digest},{len(data)}")
        rows.append(f"{name}/__pycache__/module{index}.cpython-311.pyc,,")
    info = site / f"{name}-1.{number}.dist-info"
    info.mkdir()
    needs = "".join(f"Classifier: Topic :: {n}\nRequires-Dist: package{n:03d}\n" for n in range(15))
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.{number}\n{needs}"
    (info / "METADATA").write_text(head + "\n" + "What it is good for.\n" * 300)
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")


def make(folder: Path, distributions: int, files: int) -> Path:
    """Make an environment; its files are an hour old, as those of an image are."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for number in range(distributions):
        install(site, number, files)
    hour_ago = time.time() - 3600
    for path in site.rglob("*"):
        os.utime(path, (hour_ago, hour_ago))
    return folder


def median(*words: str | Path) -> tuple[float, float]:
    """Run a command some times; returns the medians of its seconds and of its processors'."""
    seconds, busy = [], []
    for _ in range(TIMES):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(list(map(str, words)), check=True, stderr=subprocess.DEVNULL)
        seconds.append(time.monotonic() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds), statistics.median(busy)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--distributions", type=int, default=400)
    options.add_argument("--files", type=int, default=50)
    options.add_argument("--environment", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = given.environment or make(folder / "venv", given.distributions, given.files)
        key, manifest = folder / "key.pem", folder / "manifest.json"
        subprocess.run([ENVCHECK, "keygen", "-q", "-o", key], check=True)
        check = (ENVCHECK, "check", "-q", "--python", place, "--arch", "ampere")
        subprocess.run([*check, "--sign", key, "-o", manifest], check=True)
        python = place / "bin" / "python"
        gate = (ENVCHECK, "guard", "--manifest", manifest, "--key", key.with_suffix(".pub"))
        alone, _ = median("true")
        print("| what | time | processors |\n|---|---|---|")
        for what, more in (("`envcheck guard`", ()), ("the same with `--deep`", ("--deep",))):
            seconds, busy = median(*gate, *more, "--python", python, "--", "true")
            print(f"| {what} | {seconds - alone:.2f} s | {busy:.2f} s |")


if __name__ == "__main__":
    main()
