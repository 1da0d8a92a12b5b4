"""With which NumPy's headers extension modules were compiled, read from their bytes.

`import_array()` of NumPy's headers is compiled into every module that uses its C API, with the
texts of its errors. In headers of NumPy 1 it looks in `numpy.core` alone and refuses an ABI other
than its own; NumPy 2 has another. In those of NumPy 2 it looks in `numpy._core` first, takes any
ABI that is not newer, and names the oldest release whose API it accepts. Source:
`numpy/__multiarray_api.h` of 1.26.4 and 2.4.6. A module that goes through pybind11 has none of
these texts, and nothing is said of it.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections import defaultdict

from envcheck.core.installed import NumpyUse
from envcheck.core.names import visible
from envcheck.guest import elf
from envcheck.guest.records import Owned, first

BOUND = 128 << 20
TOTAL = 2 << 30
_ABI = b"ABI version 0x%x but this version of numpy"
_NEW = b"numpy._core._multiarray_umath"
_LEAST = b"module was compiled against NumPy C-API version 0x%x (NumPy "
_VENDOR = ("nvidia/", "torch/lib/", "triton/")
"""Large libraries of these folders are no extension modules; torch's own is one of them."""


def read(every: list[Owned], shadowed: set[int]) -> tuple[tuple[NumpyUse, ...], int]:
    """Return how packages use NumPy's C API, and how many modules were not looked at."""
    groups: dict[tuple[str, int, str | None], list[str]] = defaultdict(list)
    unread = spent = 0
    for number, one in enumerate(every):
        if number in shadowed or one.name.startswith("numpy "):
            continue
        for path, _, _ in one.rows:
            if not _is_module(path):
                continue
            where = one.absolute(path)
            try:
                seen = os.stat(where)
            except (OSError, ValueError):
                continue  # a missing file is told as such where RECORD is compared
            size = seen.st_size
            if not stat.S_ISREG(seen.st_mode) or size > BOUND or spent + size > TOTAL:
                unread += 1
                continue
            spent += size
            found = _headers(where) if size else None
            if found is not None:
                groups[(one.name, *found)].append(path)
    uses = (
        NumpyUse(
            owner=visible(owner), headers=headers, least=least, count=len(paths),
            paths=first(paths),
        )
        for (owner, headers, least), paths in sorted(groups.items(), key=str)
    )  # fmt: skip
    return tuple(uses), unread


def _is_module(path: str) -> bool:
    if path == "torch/lib/libtorch_python.so":
        return True
    name = path.rpartition("/")[2]
    return name.endswith(".so") and not name.startswith("lib") and not path.startswith(_VENDOR)


def _headers(where: str) -> tuple[int, str | None] | None:
    """Return major and oldest NumPy of one module, None where it does not use the C API."""
    try:
        with (
            open(where, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            places = _constants(data)
            if _find(data, places, _ABI) < 0:
                return None
            if _find(data, places, _NEW) < 0:
                return 1, None
            at = _find(data, places, _LEAST)
            text = data[at + len(_LEAST) : at + len(_LEAST) + 16] if at >= 0 else b""
    except (OSError, ValueError):
        return None
    match = re.match(rb"(\d+\.\d+)\+?\)", text)
    return 2, match[1].decode() if match is not None else None


def _constants(data: mmap.mmap) -> list[tuple[int, int]]:
    """Return where texts stand in a module: most of it is code, which takes its time to read."""
    try:
        found = elf.read(data)
        places = [found.content(s) for s in found.sections if s.name.startswith(".rodata")]
    except elf.Malformed:
        places = []
    return places or [(0, len(data))]


def _find(data: mmap.mmap, places: list[tuple[int, int]], text: bytes) -> int:
    return max((data.find(text, start, end) for start, end in places), default=-1)
