"""Load device-code files on the first card and launch what they hold, each in its own process.

An image (cubin, fatbin, PTX) goes to `cuModuleLoadData`, and one kernel of it is launched:
`kernel(int *out, int n)` writes `3 * i + 1`. A library is opened and each of its launchers is
called: `launch(which)` with `launch_name(which)`, or `probe_run()`; these return 0, an error,
1000 + error where the set-up failed, or a negative number for wrong numbers.

A result is `ok`, `load:ERROR`, `launch:ERROR`, `setup:ERROR` (it failed before the file's own code
was asked for), `wrong-numbers`, `crash:SIGNAL` or `timeout`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from envcheck.core.agreement import Launch
from envcheck.guest import trial
from envcheck.guest.driver import LIBRARY, Driver, DriverFailed

Results = dict[str, str]
"""What became of each kernel of a file, in the file's order."""

WRONG = "wrong-numbers"
_DEADLINE = 45.0
_COUNT = 64
_DYNAMIC_SHARED, _NONPORTABLE_CLUSTER = 8, 14  # of CUfunction_attribute
# A compiler may append parameters of its own, which may be null (Triton: two scratch pointers).
_SPARE_PARAMETERS = 6


def load_all(
    files: Sequence[tuple[str, Launch]],
    *,
    parallel: int = 4,
    library: str = LIBRARY,
    cudart: str | None = None,
    settings: Mapping[str, str] | None = None,
    deadline: float = _DEADLINE,
) -> tuple[Results, ...]:
    """Load each file (path, how to launch its kernel) on the first card; in the order given.

    `cudart` is a shared CUDA runtime for libraries that need one, else one is looked for.
    `settings` are environment variables for the driver; its cache of compiled PTX is off.
    """
    works = [
        partial(_load, path, launch, library, cudart, dict(settings or {}))
        for path, launch in files
    ]
    trials = trial.run_all(works, deadline=deadline, parallel=parallel)
    return tuple(_results(t) for t in trials)


def _results(done: trial.Trial) -> Results:
    outcome = done.outcome
    if isinstance(done.value, dict):
        return {str(kernel): str(result) for kernel, result in done.value.items()}
    if outcome.status == "timed-out":
        return {"probe": "timeout"}
    said = outcome.signal or outcome.error or f"exit {outcome.code}"
    return {"probe": f"crash:{said}"}


def _load(
    path: str, launch: Launch, library: str, cudart: str | None, settings: dict[str, str]
) -> Results:
    """Load one file; runs in a child, before which nothing has opened the driver."""
    os.environ.update({"CUDA_CACHE_DISABLE": "1", **settings})
    driver = Driver(library)
    if path.endswith(".so"):
        return load_library(driver, path, cudart)
    return {launch.kernel: load_image(driver, Path(path).read_bytes(), launch)}


def load_image(driver: Driver, image: bytes, launch: Launch) -> str:
    """Load an image and launch its kernel; leaves a context behind."""
    stage = "setup"
    try:
        context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuInit", 0)
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        driver.call("cuCtxSetCurrent", context)
        stage = "load"
        driver.call("cuModuleLoadData", ctypes.byref(module), image + b"\0")
        stage = "launch"
        name = launch.kernel.encode()
        driver.call("cuModuleGetFunction", ctypes.byref(function), module, name)
        return _launch(driver, function, launch)
    except DriverFailed as error:
        return f"{stage}:{error.name}"


def _launch(driver: Driver, function: ctypes.c_void_p, launch: Launch) -> str:
    """Launch a kernel and compare what it wrote; raises DriverFailed."""
    host = (ctypes.c_int * _COUNT)()
    size = ctypes.c_size_t(ctypes.sizeof(host))
    memory, count, null = ctypes.c_uint64(), ctypes.c_int(_COUNT), ctypes.c_uint64(0)
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), size)
    driver.call("cuMemsetD8_v2", memory, ctypes.c_ubyte(255), size)
    if launch.dynamic_shared:
        driver.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, launch.dynamic_shared)
    if launch.nonportable_cluster:
        driver.call("cuFuncSetAttribute", function, _NONPORTABLE_CLUSTER, 1)
    given = [memory, count, *[null] * _SPARE_PARAMETERS]
    arguments = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
    grid, block = (launch.blocks, 1, 1), (launch.threads, 1, 1)
    shape = (*grid, *block, launch.dynamic_shared)
    driver.call("cuLaunchKernel", function, *shape, None, arguments, None)
    driver.call("cuCtxSynchronize")
    driver.call("cuMemcpyDtoH_v2", host, memory, size)
    return "ok" if list(host) == [3 * i + 1 for i in range(_COUNT)] else WRONG


def load_library(driver: Driver, path: str, cudart: str | None) -> Results:
    """Open a library and call each of its launchers."""
    try:
        _open_runtime(cudart)
        library = ctypes.CDLL(os.path.realpath(path))
    except OSError as error:
        stage = "setup" if "libcudart" in str(error) else "load"
        return {"probe": f"{stage}:{error}"}
    if hasattr(library, "probe_run") and not hasattr(library, "launch"):
        return {"probe": _returned(driver, library.probe_run())}
    if not hasattr(library, "launch"):
        return {"probe": "setup:no launcher"}
    library.launch_name.restype = ctypes.c_char_p
    results: Results = {}
    while name := library.launch_name(len(results)):
        results[name.decode()] = _returned(driver, library.launch(len(results)))
    return results


def _returned(driver: Driver, code: int) -> str:
    """Turn a launcher's number into a result."""
    if code <= 0:
        return WRONG if code else "ok"
    stage, code = ("setup", code - 1000) if code >= 1000 else ("launch", code)
    return f"{stage}:{driver.error_name(code)} ({code})"


def _open_runtime(cudart: str | None) -> None:
    """Open the CUDA runtime that libraries may need; one that is not there is their own failure."""
    found = cudart or next(_runtimes(), None)
    if found is not None:
        ctypes.CDLL(found, mode=ctypes.RTLD_GLOBAL)


def _runtimes() -> Iterator[str]:
    """Yield shared CUDA runtimes: those of this interpreter's packages, then the toolkit's."""
    for root in sys.path:
        yield from map(str, sorted(Path(root).glob("nvidia/*/lib/libcudart.so.1[3-9]")))
    yield from map(str, sorted(Path("/usr/local").glob("cuda*/lib64/libcudart.so.1[3-9]")))
