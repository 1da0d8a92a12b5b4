"""The nvcc that PyTorch would build extensions with, read from its own files; it is not run."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil

from envcheck.core.tools import Nvcc

_RELEASE = re.compile(rb"Cuda compilation tools, release (\d{1,3}\.\d{1,3})")
_TEXT = re.compile(r"CUDA Version (\d{1,3}\.\d{1,3})")
_CALLED = re.compile(rb"(/[^\s\"';|&]*/bin)/nvcc\b")
_LIMIT = re.compile(r"^#if __GNUC__ > (\d{1,3})", re.MULTILINE)
# nvcc of CUDA 13.0 is 22 MB large; a wrapper is a script of some lines.
_MAX_PROGRAM, _MAX_SCRIPT, _MAX_TEXT = 1 << 27, 1 << 14, 1 << 20


def find() -> Nvcc | None:
    """Find nvcc in PyTorch's order: CUDA_HOME, CUDA_PATH, the one on PATH, /usr/local/cuda."""
    for origin in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(origin):
            return _at(origin, home)
    if path := shutil.which("nvcc"):
        return _at("PATH", os.path.dirname(os.path.dirname(path)), path)
    home = "/usr/local/cuda"
    return _at(home, home) if os.path.exists(home) else None


def _at(origin: str, home: str, path: str | None = None) -> Nvcc:
    path = path or os.path.join(home, "bin", "nvcc")
    if not os.path.isfile(path):
        return Nvcc(origin=origin, home=home, path=None)
    toolkit = _behind(path) or os.path.dirname(os.path.dirname(os.path.realpath(path)))
    return Nvcc(
        origin=origin,
        home=home,
        path=path,
        release=_release(toolkit),
        newest_gcc=_newest_gcc(toolkit),
    )


def _behind(path: str) -> str | None:
    """Return the toolkit of the nvcc that a wrapper script calls, None for a program."""
    head = _read(path, _MAX_SCRIPT)
    match = _CALLED.search(head) if head.startswith(b"#!") else None
    return None if match is None else os.path.dirname(os.fsdecode(match[1]))


def _release(toolkit: str) -> str | None:
    """Return the CUDA release: from the programs themselves, then from what lies beside them."""
    for name in ("nvcc", "ptxas"):
        match = _RELEASE.search(_read(os.path.join(toolkit, "bin", name), _MAX_PROGRAM))
        if match is not None:
            return match[1].decode()
    try:
        data = json.loads(_read(os.path.join(toolkit, "version.json"), _MAX_TEXT) or b"{}")
        version = str(data["cuda"]["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = _read(os.path.join(toolkit, "version.txt"), _MAX_TEXT).decode("latin-1")
        found = _TEXT.search(text)
        return None if found is None else found[1]
    return ".".join(version.split(".")[:2]) if re.fullmatch(r"\d+\.\d+[.\d]*", version) else None


def _newest_gcc(toolkit: str) -> int | None:
    inner = glob.escape(toolkit)
    for pattern in ("include", "targets/*/include"):
        for path in sorted(glob.glob(f"{inner}/{pattern}/crt/host_config.h")):
            match = _LIMIT.search(_read(path, _MAX_TEXT).decode("latin-1"))
            if match is not None:
                return int(match[1])
    return None


def _read(path: str, most: int) -> bytes:
    """Return the start of a regular file, nothing of anything else."""
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as handle:
            return handle.read(most)
    except (OSError, ValueError):
        return b""
