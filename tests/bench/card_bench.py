"""Measure what running everything on the card of this machine costs, beside a plain PyTorch.

    python tests/bench/card_bench.py [--python PATH]

Prints rows for the README: the whole check with its defaults (the second time, so that files and
what is built are there), with `--budget 20s`, and for scale what starting PyTorch and one
product of matrices take in the same environment. Then what preflight says of the card beside
what nvidia-smi says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TELLING = (
    *("launches-are-quick", "host-link-is-fast", "device-memory-is-fast"),
    *("device-memory-holds-what-is-written", "matrix-units-are-fast"),
    *("repeated-work-is-bit-equal", "link-has-all-its-lanes", "card-keeps-its-clocks"),
)
_PLAIN = "import torch; x = torch.ones(512, 512, device='cuda'); print((x @ x).sum().item())"


def timed(*words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a command; returns its seconds and what it said."""
    started = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return time.monotonic() - started, done


def envcheck(*words: str) -> tuple[float, dict[str, Any]]:
    """Run a command of envcheck; returns its seconds and the report."""
    # Not by PYTHONPATH: what lies there belongs to the environment that is checked.
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from envcheck.__main__ import main"
    seconds, done = timed(sys.executable, "-c", f"{start}; main()", *words, "--format", "json")
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
    check = ("check", "--python", python, "--arch", "native")
    preflight = ("preflight", "--python", python)
    print("| what | measured | goal |\n|---|---|---|")
    row("check, the first time", *_swap(envcheck(*check)))
    row("check, with a warm file cache", *_swap(envcheck(*check), "60 s"))
    row("check with --budget 20s", *_swap(envcheck(*check, "--budget", "20s"), "20 s, 10 %"))
    row("preflight --quick", *_swap(envcheck(*preflight, "--quick"), "20 s"))
    with tempfile.NamedTemporaryFile(suffix=".json") as kept:
        found = envcheck(*preflight, "--save-inventory", kept.name)
        row("preflight", *_swap(found, "60 s"))
        machine = json.loads(Path(kept.name).read_text(encoding="utf-8"))["machine"]
    row("for scale: PyTorch and one product", timed(python, "-c", _PLAIN)[0], "")
    beside(machine["managed"]["devices"][0], found[1])


_ASKED = {
    "name": "name",
    "memory.total": "memory",
    "vbios_version": "vbios",
    "ecc.errors.uncorrected.volatile.total": "uncorrected_volatile",
    "pcie.link.gen.current": "generation",
    "pcie.link.width.current": "width",
    "power.limit": "limit",
}


def beside(device: dict[str, Any], report: dict[str, Any]) -> None:
    """Print what preflight says of the first card beside what nvidia-smi does, and its rates."""
    query = f"--query-gpu={','.join(_ASKED)}"
    done = timed("nvidia-smi", query, "--format=csv,noheader", "--id=0")[1]
    print("\n| of the card | nvidia-smi | preflight |\n|---|---|---|")
    for field, told in zip(_ASKED, done.stdout.strip().split(", "), strict=True):
        print(f"| {field} | {told} | {_find(device, _ASKED[field])} |")
    for finding in report["findings"]:
        if finding["check"] in TELLING and finding["status"] != "skip":
            print(f"| {finding['check']} | | {finding['status']}: {finding['message']} |")


def _find(document: Any, name: str) -> object:
    """Return the first value of that name, at whatever depth."""
    if not isinstance(document, dict):
        return None
    if name in document and not isinstance(document[name], dict):
        return document[name]
    found = (_find(value, name) for value in document.values())
    return next((value for value in found if value is not None), None)


def _swap(measured: tuple[float, dict[str, Any]], goal: str = "") -> tuple[float, str, Any]:
    seconds, report = measured
    return seconds, goal, report


if __name__ == "__main__":
    main()
