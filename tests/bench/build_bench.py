"""Measure `envcheck build` against the promises of the README; run by hand, on a quiet machine.

    python tests/bench/build_bench.py --base IMAGE@sha256:... --environment VENV [OPTION...]

Builds blackwell with Docker from an empty cache and tells how long each part took, then builds
again with nothing changed. VENV holds torch 2.14.1, whose Triton compiles all kernels twice
with one cache. Further options go to `envcheck build` (`--ca-file`, `--pip-config`). Prints a
Markdown table. The peers' images are asked of their registry, where it can be reached.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVCHECK = str(Path(sys.executable).with_name("envcheck"))
ROOT = Path(__file__).parent.parent.parent
PEERS = tuple(f"pytorch/pytorch:2.14.1-cuda13.0-cudnn9-{kind}" for kind in ("runtime", "devel"))
COMPILE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from envcheck import catalog
from envcheck.core.request import CompileRequest
from envcheck.guest import assemblers, kernels
from envcheck.guest.site_paths import site_folders
sys.path.pop(0)
started = time.monotonic()
probes = assemblers.probe("sm_120", site_folders(sys.path))
print(len(probes), time.monotonic() - started)
known = catalog.load_all([catalog.shipped()])
request = CompileRequest(
    target="sm_120", root=str(catalog.shipped()), kernels=known, cache=sys.argv[2]
)
for _ in range(2):
    started = time.monotonic()
    made = kernels.compile_kernels(request)
    assert made.outcome.ok and all(c.outcome.ok for c in made.compilations), made.message
    print(len(made.compilations), time.monotonic() - started)
"""


def build(*options: str) -> tuple[float, str]:
    """Run `envcheck build`; returns its seconds and what it said on stderr."""
    started = time.monotonic()
    done = subprocess.run(
        [ENVCHECK, "build", "--engine", "docker", "--arch", "blackwell", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr + done.stdout)
    return time.monotonic() - started, done.stderr


def compressed(image: str) -> int:
    """Return the bytes of an image as a registry keeps it: gzip, at its usual level."""
    save, gzip = ["docker", "save", image], ["gzip", "-6", "-c"]
    total = 0
    with (
        subprocess.Popen(save, stdout=subprocess.PIPE) as saved,
        subprocess.Popen(gzip, stdin=saved.stdout, stdout=subprocess.PIPE) as packed,
    ):
        assert packed.stdout is not None
        while piece := packed.stdout.read(1 << 20):
            total += len(piece)
    return total


def published(image: str) -> str:
    """Return the compressed size of a published image, or why it is not told."""
    done = subprocess.run(
        ["docker", "manifest", "inspect", image], capture_output=True, text=True, check=False
    )
    try:
        return f"{sum(layer['size'] for layer in json.loads(done.stdout)['layers']) / 1e9:.2f} GB"
    except (ValueError, KeyError):
        return "its registry does not answer here"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environment", required=True, type=Path)
    given, options = parser.parse_known_args()
    rows = []
    seconds, said = build("--no-cache", *options)
    match = re.search(r"blackwell: (sha256:\w+) \(([\d.]+ GB)\) in [\d.]+ s: (.*)", said)
    assert match is not None, said
    rows.append(("full build from an empty cache", f"{seconds:.0f} s: {match[3]}", ""))
    again = min(build(*options)[0] for _ in range(3))
    rows.append(("rebuild with nothing changed", f"{again:.1f} s", "5 s"))
    rows.append(("image size", match[2], ""))
    rows.append(("image size, compressed", f"{compressed(match[1]) / 1e9:.2f} GB", ""))
    rows += [(f"`{peer}`, compressed", published(peer), "") for peer in PEERS]
    with tempfile.TemporaryDirectory() as cache:
        python = str(given.environment / "bin" / "python")
        command = [python, "-c", COMPILE, str(ROOT), cache]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    probe, *compiles = (line.split() for line in done.stdout.splitlines())
    rows.append((f"{probe[0]} probes of assemblers", f"{float(probe[1]):.1f} s", ""))
    cores = len(os.sched_getaffinity(0))
    for (count, spent), what, goal in zip(
        compiles, ("first", "second"), ("30 s", "3 s"), strict=True
    ):
        text = f"{count} Triton functions for sm_120 on {cores} cores, {what} time"
        rows.append((text, f"{float(spent):.1f} s", goal))
    print("| what | measured | goal |\n|---|---|---|")
    print("\n".join(f"| {what} | {value} | {goal} |" for what, value, goal in rows))


if __name__ == "__main__":
    main()
