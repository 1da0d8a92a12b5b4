"""Measure speed and memory against the promises of the README; run by hand, on a quiet machine.

    python tests/bench/bench.py ENVIRONMENT [--runs N]

ENVIRONMENT is a venv with torch 2.14.1 from PyPI (`python -m venv E; E/bin/pip install
torch==2.14.1`). cuobjdump is the one of the distribution nvidia-cuda-cuobjdump beside this
interpreter. Prints a Markdown table. Both sides of a comparison run in turns, warm, and the
best of all runs counts for each: what else a machine does can only add to a time.
"""

from __future__ import annotations

import argparse
import mmap
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

ENVCHECK = str(Path(sys.executable).with_name("envcheck"))
COMPILED = re.compile(r"\.so(\.\d+)*$")


@dataclass
class Bench:
    """The rows of the table, and whether all of them keep their promise."""

    rows: list[str] = field(default_factory=list)
    missed: bool = False

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        target: float,
        *,
        at_least: bool = False,
        cpu: float | None = None,
    ) -> None:
        met = value >= target if at_least else value <= target
        self.missed |= not met
        sign = "at least" if at_least else "at most"
        digits = 0 if value >= 100 else 1 if value >= 10 else 3 if value < 1 else 2
        busy = "" if cpu is None else f" ({cpu:.2f} s of CPU)"
        self.rows.append(
            f"| {what} | {value:.{digits}f} {unit}{busy} | {sign} {target:g} {unit} "
            f"| {'yes' if met else '**no**'} |"
        )

    def add_time(self, what: str, runs: int, target: float, run: Callable[[], object]) -> None:
        """Add the best wall time of some runs, and the least CPU time, children included."""
        wall, cpu = [], []
        for _ in range(runs):
            start, busy = time.perf_counter(), cpu_seconds()
            run()
            wall.append(time.perf_counter() - start)
            cpu.append(cpu_seconds() - busy)
        self.add(what, min(wall), "s", target, cpu=min(cpu))


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def cuobjdump() -> str:
    files = metadata.files("nvidia-cuda-cuobjdump") or []
    return next(str(f.locate()) for f in files if f.name == "cuobjdump")


def timed(command: list[str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 10, 11), done.stderr
    return time.perf_counter() - start, done.stdout


def walk(view: mmap.mmap) -> tuple[float, Counter[str]]:
    """Walk all containers in this process; return the seconds and the cubins for each SM."""
    from envcheck.guest import containers

    start = time.perf_counter()
    found = Counter(
        entry.code.sm
        for one in containers.find(view, "shared-object")
        for entry in one.entries
        if entry.code.kind == "sass"
    )
    return time.perf_counter() - start, found


def listed(text: str) -> Counter[str]:
    """Count the cubins for each SM in what `cuobjdump --list-elf` prints."""
    return Counter(re.findall(r"\.(sm_\d+[af]?)\.cubin", text))


def peak_anonymous(command: list[str]) -> float:
    """Return the most anonymous memory that a command had, in MB, sampled each millisecond."""
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        status = f"/proc/{process.pid}/status"
        while process.poll() is None:
            match = re.search(r"RssAnon:\s+(\d+) kB", Path(status).read_text())
            most = max(most, int(match[1]) if match else 0)
            time.sleep(0.001)
    return most * 1024 / 1e6


def compare(bench: Bench, library: Path, runs: int) -> None:
    tool = cuobjdump()
    inside, whole, theirs = [], [], []
    with open(library, "rb") as handle:
        view = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
    walk(view)  # warm
    for _ in range(runs):
        seconds, text = timed([tool, "--list-elf", str(library)])
        theirs.append(seconds)
        for _ in range(3):
            seconds, found = walk(view)
            inside.append(seconds)
            whole.append(timed([ENVCHECK, "scan", str(library), "--arch", "blackwell", "-q"])[0])
        # cuobjdump names a cubin by its ELF header, which cannot say `f`; the entry's header can.
        ours = Counter({sm.removesuffix("f"): n for sm, n in found.items()})
        assert dict(ours) == dict(listed(text)), (found, listed(text))
    print(f"\ncubins of {library.name}, equal in both: {dict(sorted(found.items()))}")
    print(
        f"cuobjdump --list-elf {min(theirs):.2f} s (all: {', '.join(f'{t:.1f}' for t in theirs)}); "
        f"walk {min(inside) * 1000:.1f} ms; envcheck scan {min(whole):.3f} s\n"
    )
    name = f"`{library.name}` ({library.stat().st_size / 1e6:.0f} MB)"
    bench.add(f"{name}, walk in process: faster than `cuobjdump --list-elf`",
              min(theirs) / min(inside), "times", 100, at_least=True)  # fmt: skip
    bench.add(f"{name}, `envcheck scan` as a process: faster",
              min(theirs) / min(whole), "times", 20, at_least=True)  # fmt: skip
    command = [ENVCHECK, "scan", str(library), "--arch", "blackwell", "-q"]
    bench.add(f"{name}, `envcheck scan`: anonymous memory",
              max(peak_anonymous(command) for _ in range(runs)), "MB", 60)  # fmt: skip


def inventory(environment: str) -> None:
    """Inventory all shared objects of an environment, in this process."""
    from envcheck import pipeline

    found = pipeline.collect(environment, lambda *_: None, lambda _: None)
    assert len(found.files) > 100


def manifest(folder: Path, environment: str) -> list[str]:
    """Sign a manifest of the environment and return the command that verifies it."""
    key, path = folder / "key.pem", folder / "manifest.json"
    subprocess.run([ENVCHECK, "keygen", "-q", "-o", str(key)], check=True)
    command = [ENVCHECK, "check", "-q", "--python", environment, "--arch", "blackwell"]
    subprocess.run(
        [*command, "--sign", str(key), "-o", str(path)], check=True, stdout=subprocess.DEVNULL
    )
    return [ENVCHECK, "verify", str(path), "--key", str(folder / "key.pub")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    (site,) = Path(options.environment).glob("lib/python3*/site-packages")
    files = [p for p in site.rglob("*") if COMPILED.search(p.name) and not p.is_symlink()]
    for path in files:  # into the page cache
        with path.open("rb") as handle:
            while handle.read(1 << 24):
                pass
    size = sum(p.stat().st_size for p in files) / 1e9
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
          f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
    bench = Bench()
    compare(bench, site / "torch" / "lib" / "libtorch_cuda.so", options.runs)
    everything = f"all {len(files)} shared objects of the environment ({size:.1f} GB)"
    check = [ENVCHECK, "check", "-q", "--python", options.environment, "--arch", "blackwell"]
    runs, where = options.runs, options.environment
    bench.add_time(f"{everything}, inventory in process", runs, 2, lambda: inventory(where))
    bench.add_time(f"{everything}, `envcheck check` as a process", runs, 2, lambda: timed(check))
    bench.add_time("`envcheck --version`", 20, 0.15, lambda: timed([ENVCHECK, "--version"]))
    with tempfile.TemporaryDirectory() as folder:
        verify = manifest(Path(folder), options.environment)
        size = (Path(folder) / "manifest.json").stat().st_size / 1e6
        what = f"`envcheck verify` of its manifest ({size:.1f} MB)"
        bench.add_time(what, 20, 0.3, lambda: timed(verify))
    print("| what | measured | target | met |\n|---|---|---|---|")
    print("\n".join(bench.rows))
    return int(bench.missed)


if __name__ == "__main__":
    sys.exit(main())
