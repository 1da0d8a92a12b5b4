"""Measure what running everything on the card of this machine costs, beside a plain PyTorch.

    python tests/bench/card_bench.py [--python PATH]

Prints rows for the README: the whole check with its defaults (the second time, so that files and
what is built are there), with `--budget 20s`, and for scale what starting PyTorch and one
product of matrices take in the same environment.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PLAIN = "import torch; x = torch.ones(512, 512, device='cuda'); print((x @ x).sum().item())"


def timed(*words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a command; returns its seconds and what it said."""
    started = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return time.monotonic() - started, done


def check(python: str, *words: str) -> tuple[float, dict[str, Any]]:
    """Run `envcheck check --arch native`; returns its seconds and the report."""
    # Not by PYTHONPATH: what lies there belongs to the environment that is checked.
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from envcheck.__main__ import main"
    command = (sys.executable, "-c", f"{start}; main()", "check", "--python", python)
    command = (*command, "--arch", "native")
    seconds, done = timed(*command, "--format", "json", *words)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return seconds, json.loads(done.stdout)


def row(what: str, seconds: float, goal: str, report: dict[str, Any] | None = None) -> None:
    """Print one row of the table."""
    more = ""
    if report is not None:
        done = report["summary"]["executed"]
        runs = ", ".join(f"{part} {count}" for part, count in done["runs"].items() if count)
        spent = sorted(done["spent"].items(), key=lambda pair: -pair[1])
        costs = ", ".join(f"{name} {took:.1f}" for name, took in spent)
        more = f": {report['verdict']}, {report['assurance']}; runs: {runs}; left out:"
        more += f" {done['left_out']}; spent, s: {costs}"
    print(f"| {what}{more} | {seconds:.1f} s | {goal} |")


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--python", default=sys.executable)
    python = options.parse_args().python
    print("| what | measured | goal |\n|---|---|---|")
    row("check, the first time", *_swap(check(python)))
    row("check, with a warm file cache", *_swap(check(python), "60 s"))
    row("check with --budget 20s", *_swap(check(python, "--budget", "20s"), "20 s, 10 %"))
    row("for scale: PyTorch and one product", timed(python, "-c", _PLAIN)[0], "")


def _swap(measured: tuple[float, dict[str, Any]], goal: str = "") -> tuple[float, str, Any]:
    seconds, report = measured
    return seconds, goal, report


if __name__ == "__main__":
    main()
