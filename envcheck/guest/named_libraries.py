"""Libraries that others open by name while they work: resolved in advance, as dlopen would.

The names stand as text in the file that opens them. Which of them it cannot do without is
judged elsewhere.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator

from envcheck.core.linking import ByName
from envcheck.guest import elf
from envcheck.guest.elf import Malformed
from envcheck.guest.loader import Loaded, Process

_CUDNN_PARTS = (
    *("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled"),
    *("engines_runtime_compiled", "ops_infer", "ops_train", "cnn_infer", "cnn_train"),
    *("adv_infer", "adv_train"),
)
# Soname of what opens -> how the names begin, and their whole form. In cuDNN 9 they end in .so and
# get the opener's number.
_OPENERS = (
    (
        re.compile(r"libnvrtc\.so\.[\d.]+"),
        b"libnvrtc-builtins.so.",
        re.compile(rb"libnvrtc-builtins\.so\.\d+\.\d+\0"),
    ),
    (
        re.compile(r"libcudnn(?:_graph)?\.so\.\d+"),
        b"libcudnn_",
        re.compile(
            rb"libcudnn_(?:%s)\.so(?:\.\d+)?\0"
            % "|".join(sorted(_CUDNN_PARTS, key=len, reverse=True)).encode()
        ),
    ),
    (
        re.compile(r"libtorch_cuda\.so"),
        b"libtorch_cuda_linalg.so",
        re.compile(rb"libtorch_cuda_linalg\.so\0"),
    ),
)
# The text of libnvrtc stands in its first megabytes; what lies behind are its headers for CUDA.
_MAX_TEXT = 1 << 28


def named(process: Process, show: Callable[[str], str]) -> Iterator[ByName]:
    """Yield what the libraries of a process would open by name, and what those would."""
    trial = process.fork()
    for opener in trial.maps:
        soname = opener.file.dynamic.soname or ""
        for form, beginning, names in _OPENERS:
            if form.fullmatch(soname):
                for name in _names(opener, beginning, names, soname):
                    yield _resolve(trial, opener, name, show)


def _names(opener: Loaded, beginning: bytes, pattern: re.Pattern[bytes], soname: str) -> list[str]:
    view = opener.file.symbols.buffer
    try:
        sections = elf.read(view)
        text = sections.find(".rodata")
        begin, end = sections.content(text) if text is not None else (0, 0)
    except Malformed:
        begin, end = 0, 0
    number = soname.rpartition(".so")[2]
    found: dict[str, None] = {}
    stop = min(end, begin + _MAX_TEXT)
    # A plain search is ten times faster than that of an expression.
    at = view.find(beginning, begin, stop)
    while at >= 0:
        match = pattern.match(view, at, stop)
        if match is not None:
            name = match[0][:-1].decode("ascii")
            found.setdefault(name + number if name.endswith(".so") else name)
        at = view.find(beginning, at + 1, stop)
    if isinstance(view, mmap.mmap):
        # What was searched need not stay in memory; the kernel has it.
        view.madvise(mmap.MADV_DONTNEED)
    return list(found)


def _resolve(process: Process, opener: Loaded, name: str, show: Callable[[str], str]) -> ByName:
    opening = process.open(name, caller=opener)
    root = opening.root
    return ByName(
        name=name,
        opener=show(opener.file.real),
        path=None if root is None else show(root.file.real),
        how="" if root is None else root.how,
    )
