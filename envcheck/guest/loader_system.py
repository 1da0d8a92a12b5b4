"""What the loader of this system goes by: default folders, cache, variables, the processor."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from envcheck.guest.loader_cache import FLAGS, Entry, parse

_MAX_FILE = 1 << 26
_DEFAULTS = ("/lib64/", "/usr/lib64/")
# The array of default folders stands as text in the loader itself (SYSTEM_DIRS of elf/dl-load.c).
_FOLDERS = re.compile(rb"(?:/(?:usr/)?(?:local/)?lib[\w./-]*/\0){2,8}")

# The psABI levels of x86-64 (https://gitlab.com/x86-psABIs/x86-64-ABI), by flags of /proc/cpuinfo.
_V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_X86_64 = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What the loader knows before it loads anything."""

    machine: int
    bits: int
    folders: tuple[str, ...]
    """The default ones, in order."""
    cache: Mapping[str, list[Entry]] = field(default_factory=dict)
    library_path: tuple[str, ...] = ()
    """LD_LIBRARY_PATH."""
    preloads: tuple[str, ...] = ()
    """LD_PRELOAD and /etc/ld.so.preload."""
    hwcaps: tuple[str, ...] = ()
    """Subfolders of glibc-hwcaps that this processor may use, best first."""
    lib: str = "lib64"
    """`$LIB`."""
    platform: str = "x86_64"
    """`$PLATFORM`."""

    @property
    def flags(self) -> int | None:
        """The flags of the cache's entries for this machine."""
        return FLAGS.get(self.machine)


def read(interpreter: str, machine: int, bits: int, variables: Mapping[str, str]) -> System:
    """Read what the loader of this system goes by."""
    folders = default_folders(_bytes(interpreter)) or _DEFAULTS
    search = variables.get("LD_LIBRARY_PATH", "")
    # A colon and a semicolon both part entries, and an empty one is the working folder.
    entries = re.split("[:;]", search) if search else []
    named = re.split("[ :]", variables.get("LD_PRELOAD", ""))
    named += _bytes("/etc/ld.so.preload").decode("utf-8", "replace").split()
    return System(
        machine=machine,
        bits=bits,
        folders=tuple(folders),
        cache=parse(_bytes("/etc/ld.so.cache")),
        library_path=tuple(entry or "." for entry in entries),
        preloads=tuple(filter(None, named)),
        hwcaps=tuple(processor_levels(_bytes("/proc/cpuinfo"))) if machine == _X86_64 else (),
        lib=folders[0].strip("/").removeprefix("usr/"),
        platform=os.uname().machine,
    )


def default_folders(loader: bytes) -> list[str]:
    """Return the folders that a loader searches last, from its own bytes."""
    match = _FOLDERS.search(loader)
    return [part.decode() for part in match[0].split(b"\0") if part] if match else []


def processor_levels(cpuinfo: bytes) -> list[str]:
    """Return the subfolders that a processor with these flags may use, best first."""
    match = re.search(rb"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = set(match[1].decode("ascii", "replace").split()) if match else set()
    levels = (("x86-64-v4", _V4), ("x86-64-v3", _V3), ("x86-64-v2", _V2))
    return [name for name, needed in levels if needed <= flags]


def _bytes(path: str) -> bytes:
    """Return what a file holds, nothing when it cannot be read."""
    from envcheck.guest.reading import open_regular

    try:
        with open_regular(path) as handle:
            return handle.read(_MAX_FILE) or b""
    except OSError:
        return b""
