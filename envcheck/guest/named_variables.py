"""Variables that name programs, files and folders, of a fixed list; no other one is read."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator

from envcheck.core.names import visible
from envcheck.core.tools import Named

PATHS = (
    *("CUDA_HOME", "CUDA_PATH", "CUDNN_PATH", "TRITON_LIBCUDA_PATH", "TRITON_CUDACRT_PATH"),
    *("TRITON_CUDART_PATH", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"),
    *("TRITON_CUOBJDUMP_PATH", "TRITON_NVDISASM_PATH", "TRITON_LIBDEVICE_PATH"),
    *("NCCL_TOPO_FILE", "NCCL_CONF_FILE"),
)
PROGRAMS = ("CC", "CXX", "CUDACXX", "NVCC_CCBIN", "PYTORCH_NVCC")
TEXTS = (
    *("TORCH_CUDA_ARCH_LIST", "BNB_CUDA_VERSION"),
    *("GGML_CUDA_P2P", "TORCH_CUDA_SANITIZER", "TORCH_INDUCTOR_INSTALL_GXX"),
    *("TORCH_USE_RTLD_GLOBAL", "TORCH_NO_COMPILER_WRAPPER"),
)
LAUNCHERS = {"ccache", "sccache", "distcc", "icecc", "buildcache", "env", "nice"}
"""Programs that run the compiler which stands behind them."""
_MAX_ITEMS = 64
_MAX_VALUE = 4096


def look() -> Iterator[Named]:
    """Yield each variable of the list that is set, and what its value names."""
    for variable in PATHS:
        if value := _value(variable):
            yield Named(variable=variable, value=visible(value), found=kind(value))
    for variable in PROGRAMS:
        if value := _value(variable):
            yield Named(variable=variable, value=visible(value), found=_program(value))
    preload = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    for item in preload[:_MAX_ITEMS]:
        # A name without a slash is searched for as any library is.
        found = kind(item) if "/" in item and "$" not in item else "text"
        yield Named(variable="LD_PRELOAD", value=visible(item), found=found)
    for variable in TEXTS:
        if (text := os.environ.get(variable)) is not None:
            yield Named(variable=variable, value=visible(text[:_MAX_VALUE]), found="text")


def _value(variable: str) -> str:
    return os.environ.get(variable, "")[:_MAX_VALUE]


def kind(path: str) -> str:
    """Return what a path names: `file`, `folder`, `other` or `absent`."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return "absent"
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "other"


def _program(value: str) -> str:
    """Return `program` where a command can be run, taken as one name or as words."""
    return "program" if shutil.which(value) or program(value) else kind(value)


def program(value: str) -> str | None:
    """Return what the words of a command run in the end: `ccache gcc -m64` runs gcc by ccache."""
    try:
        words = shlex.split(value)
    except ValueError:  # a quote that nothing closes
        return None
    path = shutil.which(words[0]) if words else None
    while path is not None and os.path.basename(words[0]) in LAUNCHERS:
        rest = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
        if not rest:
            return path
        words, path = rest, shutil.which(rest[0])
    return path
