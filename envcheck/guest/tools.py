"""Compilers, headers and the driver's library, looked for where Triton and PyTorch look.

Nothing is run: a program is a file that this user may execute, its version is read from the
names and bytes of its own files. Source of each order: `triton/runtime/build.py` and
`backends/nvidia/driver.py` of Triton 2.3.1 to 3.9.0, `torch/utils/cpp_extension.py` and
`torch/_inductor/cpp_builder.py` of PyTorch 2.14.1.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator

from envcheck.core.tools import Tools
from envcheck.guest import cache_folders, compilers, named_variables, nvcc_files

_CACHED = re.compile(rb"/[^\0]{1,4000}/libcuda\.so\.1(?=\0)")
_MAX_CACHE = 1 << 26
# Where a linker of Debian, Ubuntu, Fedora and their kin looks without being told.
_LINKER = (
    *("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"),
    *("/usr/lib/aarch64-linux-gnu", "/usr/local/lib", "/usr/local/lib64"),
    *("/lib64", "/usr/lib64", "/lib", "/usr/lib"),
)


def look(*, cuda: str | None) -> Tools:
    """Look for everything; `cuda` is the release that the installed PyTorch was built with."""
    header = python_header()
    drivers = tuple(_libcuda())
    return Tools(
        compilers=tuple(compilers.look()),
        python_header=header,
        python_header_exists=header is not None and os.path.isfile(header),
        ldconfig=os.access("/sbin/ldconfig", os.X_OK),
        libcuda=drivers,
        libcuda_link=tuple(_linkable(drivers)),
        nvcc=nvcc_files.find(),
        ninja=_ninja(),
        home=cache_folders.home() is not None,
        folders=tuple(cache_folders.look(cuda=cuda)),
        shared=cache_folders.shared_memory(),
        named=tuple(named_variables.look()),
    )


def _ninja() -> str | None:
    """Return ninja as a job finds it, whose PATH begins with its virtual environment's programs."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "ninja")
    return shutil.which("ninja") or shutil.which(beside)


def python_header() -> str | None:
    """Return where `Python.h` has to be: with the base interpreter, never in a venv."""
    scheme = sysconfig.get_default_scheme()
    if scheme == "posix_local":  # Debian's; Triton and PyTorch go back to the usual one
        scheme = "posix_prefix"
    # A venv is told by `site`, which has not run: then these are the base's prefixes already.
    bases = {"base": sys.base_prefix, "installed_base": sys.base_prefix}
    folder = sysconfig.get_paths(scheme=scheme, vars=bases).get("include")
    return None if folder is None else os.path.join(folder, "Python.h")


def _libcuda() -> Iterator[str]:
    """Yield the folders with libcuda.so.1, as Triton finds them."""
    named = os.environ.get("TRITON_LIBCUDA_PATH")
    folders = [named] if named else list(_of_loader_cache())
    if not folders:
        folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for folder in dict.fromkeys(folders):
        if folder and os.path.exists(os.path.join(folder, "libcuda.so.1")):
            yield folder


def _of_loader_cache() -> Iterator[str]:
    """Yield what `ldconfig -p` would say: the paths in the cache are texts that a NUL ends."""
    try:
        with open("/etc/ld.so.cache", "rb") as handle:
            data = handle.read(_MAX_CACHE)
    except OSError:
        return
    for found in _CACHED.findall(data):
        yield os.path.dirname(os.fsdecode(found))


def _linkable(drivers: tuple[str, ...]) -> Iterator[str]:
    places = os.environ.get("LIBRARY_PATH", "").split(":")
    for folder in dict.fromkeys([*drivers, *places, *_LINKER]):
        if folder and os.path.exists(os.path.join(folder, "libcuda.so")):
            yield folder
