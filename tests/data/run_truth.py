#!/usr/bin/env python3
"""Load and launch device-code files on the card of this machine; write what happened.

Standard library only. Cubins, fatbins and PTX go to ``cuModuleLoadData`` and their
kernel ``probe`` is launched. Libraries are opened and each exported launcher is called
(``launch(which)`` with ``launch_name(which)``, or ``probe_run()``). Every file runs in
a child process of its own, with a time limit and without the driver's PTX cache.

    python3 run_truth.py truth/objects --expect truth/h200.json
    python3 run_truth.py truth-extra/objects --out truth-extra/h200.json

A result is ``ok``, ``load:ERROR``, ``launch:ERROR``, ``setup:ERROR`` (the runtime
failed before the launch), ``wrong-numbers``, ``crash:SIGNAL`` or ``timeout``. A library
of several kernels has its first failure under ``results`` and each kernel under
``kernels``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LOADABLE = {".cubin", ".fatbin", ".ptx", ".so"}
CHILD_SECONDS = 45
WRONG = "wrong-numbers"
COUNT = 64


def driver() -> ctypes.CDLL:
    """Open the driver."""
    return ctypes.CDLL("libcuda.so.1")


def error_name(cuda: ctypes.CDLL, code: int) -> str:
    """Name a driver error; the runtime's own codes have no name there."""
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode() if text.value else "unnamed"


def describe_card() -> dict[str, str]:
    """Name the card, its architecture and its driver."""
    cuda = driver()
    if code := cuda.cuInit(0):
        message = f"cuInit: {error_name(cuda, code)}"
        raise SystemExit(message)
    device, version = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), device)
    numbers = []
    for attribute in (75, 76):  # compute capability, major and minor
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        numbers.append(value.value)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    try:
        module = Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        lines = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
        module = lines[0] if lines else "unknown"
    return {
        "card": name.value.decode(),
        "sm": f"sm_{numbers[0]}{numbers[1]}",
        "driver": module,
        "driver_cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
    }


def run_image(path: Path) -> dict[str, str]:
    """Load an image through the driver and launch its kernel."""
    cuda = driver()
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    for step in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
    ):
        if step:
            return {"probe": f"setup:{error_name(cuda, step)}"}
    image = path.read_bytes() + b"\0"
    if code := cuda.cuModuleLoadData(ctypes.byref(module), image):
        return {"probe": f"load:{error_name(cuda, code)}"}
    if code := cuda.cuModuleGetFunction(ctypes.byref(function), module, b"probe"):
        return {"probe": f"launch:{error_name(cuda, code)}"}
    memory, size = ctypes.c_uint64(), ctypes.c_int(COUNT)
    host = (ctypes.c_int * COUNT)()
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.sizeof(host))
    cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(255), ctypes.c_size_t(ctypes.sizeof(host)))
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(size))
    code = (
        cuda.cuLaunchKernel(function, 2, 1, 1, COUNT // 2, 1, 1, 0, None, arguments, None)
        or cuda.cuCtxSynchronize()
        or cuda.cuMemcpyDtoH_v2(host, memory, ctypes.c_size_t(ctypes.sizeof(host)))
    )
    if code:
        return {"probe": f"launch:{error_name(cuda, code)}"}
    return {"probe": "ok" if list(host) == [3 * i + 1 for i in range(COUNT)] else WRONG}


def read_launch(cuda: ctypes.CDLL, code: int) -> str:
    """Turn a launcher's number into a result."""
    if code == 0:
        return "ok"
    if code < 0:
        return WRONG
    step, code = ("setup", code - 1000) if code >= 1000 else ("launch", code)
    return f"{step}:{error_name(cuda, code)} ({code})"


def run_library(path: Path, cudart: Path | None) -> dict[str, str]:
    """Open a library and call each of its launchers."""
    if cudart is not None:
        ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
    try:
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        return {"probe": f"load:{error}"}
    cuda = driver()
    if not hasattr(library, "launch"):
        return {"probe": read_launch(cuda, library.probe_run())}
    library.launch_name.restype = ctypes.c_char_p
    results: dict[str, str] = {}
    while name := library.launch_name(len(results)):
        results[name.decode()] = read_launch(cuda, library.launch(len(results)))
    return results


def run_child(path: Path, cudart: Path | None, settings: dict[str, str]) -> dict[str, str]:
    """Run one file in a child process."""
    command = [sys.executable, __file__, "--child", str(path)]
    if cudart is not None:
        command += ["--cudart", str(cudart)]
    environment = {**os.environ, "CUDA_CACHE_DISABLE": "1", **settings}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=CHILD_SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return {"probe": "timeout"}
    if done.returncode < 0:
        return {"probe": f"crash:{signal.Signals(-done.returncode).name}"}
    if done.returncode:
        return {"probe": f"crash:exit {done.returncode}: {done.stderr.strip()[-200:]}"}
    results: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return results


def fold(kernels: dict[str, str]) -> str:
    """Return the first failure, or ``ok``."""
    return next(
        (result for result in kernels.values() if result != "ok"), "ok" if kernels else "no kernel"
    )


def find_cudart() -> Path | None:
    """Find a shared CUDA runtime beside this interpreter's packages."""
    for root in sys.path:
        for found in sorted(Path(root).glob("nvidia/*/lib/libcudart.so.1[3-9]")):
            return found
    return None


def run_all(
    paths: list[Path], cudart: Path | None, settings: dict[str, str], jobs: int
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Run every file; return the results, and the kernels of files that hold several."""
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda path: run_child(path, cudart, settings), paths))
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


def main() -> int:
    """Run a folder of files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "paths", type=Path, nargs="*", metavar="PATH", help="folders of objects, or objects"
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
    parser.add_argument(
        "--cudart", type=Path, help="a shared CUDA runtime to open before libraries"
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="run once more with this",
    )
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cudart = options.cudart or find_cudart()
    if options.child is not None:
        path = options.child
        kernels = run_library(path, cudart) if path.suffix == ".so" else run_image(path)
        sys.stdout.write(json.dumps(kernels) + "\n")
        sys.stdout.flush()
        os._exit(0)  # the driver's own teardown after a failed launch is of no interest
    if not options.paths:
        parser.error("name a folder of objects")
    named = [
        item for path in options.paths for item in (path.iterdir() if path.is_dir() else [path])
    ]
    paths = sorted(path for path in named if path.suffix in LOADABLE)
    report: dict[str, Any] = {**describe_card()}
    results, several = run_all(paths, cudart, {}, options.jobs)
    report["results"], report["kernels"] = results, several
    settings: dict[str, dict[str, object]] = {}
    for setting in options.setting:
        variable, _, value = setting.partition("=")
        changed, changed_kernels = run_all(paths, cudart, {variable: value}, options.jobs)
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
