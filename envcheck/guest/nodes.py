"""The device nodes of the cards: those that this process may open, without opening them."""

from __future__ import annotations

import glob
import os
import stat


def nodes(dev: str = "/dev") -> tuple[str, ...]:
    """Return `/dev/nvidia0`, `/dev/nvidia-caps/nvidia-cap1` and the like.

    A node that is there and that the control group does not let this process use is left out, as
    is one that its permissions forbid: `access` is told so by the kernel like `open`, and wakes no
    card. That is how running containers lose cards (NVIDIA/nvidia-container-toolkit#48).
    """
    return tuple(node for node in _all(dev) if os.access(node, os.R_OK))


def forbidden(dev: str = "/dev") -> tuple[str, ...]:
    """Return those that are there and that this process may not open."""
    return tuple(node for node in _all(dev) if not os.access(node, os.R_OK))


def unlinked(dev: str = "/dev") -> tuple[str, ...] | None:
    """Return the nodes without their link in `/dev/char`; None where there are no such links."""
    if not os.path.isdir(f"{dev}/char"):
        return None
    return tuple(n for n in nodes(dev) if not os.path.exists(f"{dev}/char/{_number(n)}"))


def _all(dev: str) -> list[str]:
    found = [*glob.glob(f"{dev}/nvidia*"), *glob.glob(f"{dev}/nvidia-caps*/*")]
    return sorted(node for node in found if _number(node) is not None)


def _number(node: str) -> str | None:
    """Return `195:0`; None for what is no device of characters."""
    try:
        status = os.stat(node)
    except OSError:
        return None
    if not stat.S_ISCHR(status.st_mode):
        return None
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
