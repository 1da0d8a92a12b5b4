#!/usr/bin/env python3
"""Measure what the card of this machine does with device-code files, and keep it as JSON.

The loading is that of ``envcheck selftest --truth``, which judges and compares as well; this
writes the rows that the tests compare with where there is no card. A library of several
kernels has its first failure under ``results`` and each kernel under ``kernels``.

    python3 run_truth.py truth/objects --expect truth/h200.json
    python3 run_truth.py truth-extra/objects --out truth-extra/h200.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envcheck import selftest
from envcheck.core.agreement import Launch, fold
from envcheck.errors import FileUnavailable
from envcheck.guest import loading

LOADABLE = {".cubin", ".fatbin", ".ptx", ".so"}

Rows = tuple[dict[str, str], dict[str, dict[str, str]]]


def describe_card() -> dict[str, str | None]:
    """Name the card, its architecture and its driver."""
    try:
        card, facts = selftest.card()
    except FileUnavailable as error:
        raise SystemExit(error.message) from None
    return {
        "card": card.name,
        "sm": card.sm,
        "driver": facts.module or "unknown",
        "driver_cuda": facts.cuda,
    }


def run_all(paths: list[Path], settings: dict[str, str], options: argparse.Namespace) -> Rows:
    """Run every file; return the results, and the kernels of files that hold several."""
    found = loading.load_all(
        [(str(path), Launch()) for path in paths],
        parallel=options.jobs,
        cudart=options.cudart,
        settings=settings,
    )
    named = {path.name: kernels for path, kernels in zip(paths, found, strict=True)}
    several = {name: kernels for name, kernels in named.items() if len(kernels) > 1}
    return {name: fold(kernels) for name, kernels in named.items()}, several


def write(out: Path, report: dict[str, Any], *, update: bool) -> None:
    """Write the report; keep the notes of an older one and, on ``update``, its other rows."""
    old: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    if update and old:
        if any(old[key] != report[key] for key in ("card", "sm", "driver", "driver_cuda")):
            message = f"{out} is of another card or driver"
            raise SystemExit(message)
        ran = report["results"].keys()
        tables = [(old, report, "results"), (old, report, "kernels")]
        new_settings = report.setdefault("differs_with", {})
        for setting, rows in old.get("differs_with", {}).items():
            new_settings.setdefault(setting, {})
            tables.append(({setting: rows}, new_settings, setting))
        for before, after, key in tables:
            kept = {name: row for name, row in before[key].items() if name not in ran}
            after[key] = dict(sorted((kept | after[key]).items()))
    if "notes" in old:
        report["notes"] = old["notes"]
    out.write_text(json.dumps(report, indent=1) + "\n")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="folders of objects, or objects"
    )
    parser.add_argument(
        "--out", type=Path, help="write the results as JSON; notes of an older file are kept"
    )
    parser.add_argument(
        "--update", action="store_true", help="keep the rows of --out that this call does not run"
    )
    parser.add_argument(
        "--expect", type=Path, help="compare with earlier results and fail on a difference"
    )
    parser.add_argument("--cudart", help="a shared CUDA runtime to open before libraries")
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="run once more with this",
    )
    parser.add_argument("--jobs", type=int, default=8)
    return parser.parse_args()


def main() -> int:
    """Run a folder of files."""
    options = parse()
    named = [
        item for path in options.paths for item in (path.iterdir() if path.is_dir() else [path])
    ]
    paths = sorted(path for path in named if path.suffix in LOADABLE)
    report: dict[str, Any] = {**describe_card()}
    results, several = run_all(paths, {}, options)
    report["results"], report["kernels"] = results, several
    settings: dict[str, dict[str, object]] = {}
    for setting in options.setting:
        variable, _, value = setting.partition("=")
        changed, changed_kernels = run_all(paths, {variable: value}, options)
        settings[setting] = {
            key: changed_kernels.get(key, result)
            for key, result in changed.items()
            if (result, changed_kernels.get(key)) != (results[key], several.get(key))
        }
    if settings:
        report["differs_with"] = settings
    if options.out is not None:
        write(options.out, report, update=options.update)
    different = 0
    if options.expect is not None:
        expected = json.loads(options.expect.read_text())["results"]
        for name in sorted(expected.keys() | results.keys()):
            if expected.get(name) != results.get(name):
                different += 1
                sys.stdout.write(
                    f"{name}: expected {expected.get(name)}, got {results.get(name)}\n"
                )
    good = sum(result == "ok" for result in results.values())
    sys.stdout.write(f"{len(results)} files, {good} ok, {different} unlike the expectation\n")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
