"""The folders in which a job's compilers keep what they made, as this user would find them.

The kernel is asked for the rights, the mount's options, and a file without a name: that one is in
no folder, holds nothing and is gone when it is closed, but is refused wherever any file would be,
to root as well, of whom `access` says that everything may be written.
"""

from __future__ import annotations

import errno
import getpass
import os
import re
import sys
import tempfile
from collections.abc import Iterator

from envcheck.core.names import visible
from envcheck.core.tools import Folder, SharedMemory
from envcheck.guest import filesystems

_PLENTY = 1 << 30
# What a file system says that knows no files without a name (NFS, FUSE, overlayfs before 6.1).
_NOT_TOLD = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}


def home() -> str | None:
    """Return the user's home folder, None for a user without one."""
    path = os.path.expanduser("~")
    return None if path == "~" else path


def look(*, cuda: str | None) -> Iterator[Folder]:
    """Yield each folder; `cuda` is the release of the installed PyTorch."""
    for role, origin, path in paths(cuda=cuda):
        yield _folder(role, origin, path)


def paths(*, cuda: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield role, origin and path of each folder.

    Source: `triton/knobs.py` of Triton 3.8, `torch/_inductor/runtime/cache_dir_utils.py` and
    `torch/utils/cpp_extension.py` of PyTorch 2.14.1, CUDA C Programming Guide (CUDA_CACHE_PATH).
    """
    user = home() or "~"
    temporary = _temporary()
    base = os.environ.get("TRITON_HOME")
    default = os.path.join(base or user, ".triton", "cache")
    yield _one("triton", "TRITON_CACHE_DIR", default, "TRITON_HOME" if base else "default")
    inductor = os.path.join(temporary, f"torchinductor_{_user()}")
    yield _one("inductor", "TORCHINDUCTOR_CACHE_DIR", inductor)
    xdg = os.environ.get("XDG_CACHE_HOME")
    kind = "cpu" if cuda is None else f"cu{cuda.replace('.', '')}"
    version = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    built = os.path.join(xdg or os.path.join(user, ".cache"), "torch_extensions")
    origin = "XDG_CACHE_HOME" if xdg else "default"
    extensions = os.path.join(built, f"{version}_{kind}")
    yield _one("extensions", "TORCH_EXTENSIONS_DIR", extensions, origin)
    yield _one("cuda", "CUDA_CACHE_PATH", os.path.join(user, ".nv", "ComputeCache"))
    yield _one("temporary", "TMPDIR", temporary)


def shared_memory(path: str = "/dev/shm") -> SharedMemory:  # noqa: S108 - where glibc has it
    """Return what is known of the folder for shared memory."""
    try:
        status = os.statvfs(path)
    except OSError:
        return SharedMemory(path=path, exists=os.path.lexists(path))
    return SharedMemory(
        path=path,
        exists=True,
        writable=os.access(path, os.W_OK | os.X_OK) and not status.f_flag & os.ST_RDONLY,
        size=status.f_blocks * status.f_frsize or None,
    )


def _one(role: str, variable: str, default: str, origin: str = "default") -> tuple[str, str, str]:
    value = os.environ.get(variable)
    return (role, variable, value) if value else (role, origin, default)


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # no folder that can be written to, which is a fact about all of them
        return "/tmp"  # noqa: S108


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, ImportError, OSError):
        name = f"uid_{os.getuid()}"
    return re.sub(r'[\\/:*?"<>|]', "_", name)


def _folder(role: str, origin: str, path: str) -> Folder:
    absolute = os.path.abspath(path)
    exists = os.path.lexists(absolute)
    nearest = filesystems.nearest(absolute)
    kind = "folder" if os.path.isdir(nearest) else "other" if os.path.exists(nearest) else "absent"
    flags, free, refused = 0, None, _refused(nearest) if kind == "folder" else None
    try:
        status = os.statvfs(nearest)
    except OSError:
        kind = "absent"
    else:
        flags = status.f_flag
        # Some file systems over a network say nothing of their size.
        free = status.f_bavail * status.f_frsize if status.f_blocks else None
    return Folder(
        role=role,
        origin=origin,
        path=visible(path),
        exists=exists,
        kind=kind,
        writable=kind == "folder" and refused is None and os.access(nearest, os.W_OK | os.X_OK),
        refused=refused,
        filesystem=filesystems.kind(nearest),
        read_only=bool(flags & os.ST_RDONLY),
        noexec=bool(flags & os.ST_NOEXEC),
        free=free if free is not None and free < _PLENTY else None,
    )


def _refused(folder: str) -> str | None:
    """Return why no file can be made in a folder, None where one can or nobody says."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        return None if error.errno in _NOT_TOLD else filesystems.refusal(error)
    return None
