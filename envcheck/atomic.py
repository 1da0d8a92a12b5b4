"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from envcheck.errors import FileUnavailable


def write(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; the old file stays when anything fails. Raises FileUnavailable."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        message = f"{path}: cannot be written: {error.strerror or error}"
        raise FileUnavailable(message, remedy="choose another place for the file") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)
