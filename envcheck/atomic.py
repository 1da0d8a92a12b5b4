"""Write a file whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from envcheck.errors import FileUnavailable


def write(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; the old file stays when anything fails. Raises FileUnavailable.

    A link keeps pointing to its file, which is replaced. What is no file (a device, a folder)
    is refused: renaming a new file over it would destroy it.
    """
    temporary = None
    try:
        target = os.path.realpath(path)
        mode = _mode(target)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".envcheck-")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        message = f"{path}: cannot be written: {error.strerror or error}"
        raise FileUnavailable(message, remedy="choose another place for the file") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def _mode(target: str) -> int:
    """Return the permissions that the file has, or that a new one gets; raises OSError."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask
    if not stat.S_ISREG(status.st_mode):
        message = "it exists and is not a regular file"
        raise OSError(message)
    return stat.S_IMODE(status.st_mode)
