"""Files that are read whole: of bounded size, and regular ones alone."""

from __future__ import annotations

from pathlib import Path

from envcheck.errors import FileUnavailable

_MAX = 1 << 28


def read(path: Path) -> bytes:
    """Return the bytes of a file of bounded size; raises FileUnavailable."""
    try:
        if not path.is_file():
            reason = "not a regular file" if path.exists() else "no such file"
            message = f"{path}: {reason}"
            raise FileUnavailable(message, remedy="check the path")
        if path.stat().st_size > _MAX:
            message = f"{path}: larger than {_MAX} bytes"
            raise FileUnavailable(message)
        return path.read_bytes()
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise FileUnavailable(message, remedy="check the path") from None
