"""Facts about images that were gathered before: the same image and request give the same.

An image's id is the digest of its content, and the guest in it has no network, no card and
no other input than its request, so nothing is lost by not asking again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from envcheck import atomic, bundle
from envcheck.core import codec
from envcheck.core.model import INVENTORY_SCHEMA, Inventory
from envcheck.errors import EnvcheckError


def key(parts: Iterable[str]) -> str:
    """Return the name under which facts are kept: these parts, and the guest's own code."""
    whole = "\0".join((INVENTORY_SCHEMA, bundle.digest(), *parts))
    return hashlib.sha256(whole.encode()).hexdigest()


def cache_folder() -> Path:
    """Return where envcheck keeps what it can make again; XDG_CACHE_HOME moves it."""
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named or Path.home() / ".cache") / "envcheck"


def writable(folder: Path) -> Path | None:
    """Make a folder and return it; None where nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def load(name: str) -> Inventory | None:
    """Return what is kept under a name, None where there is nothing that can be read."""
    path = _file(name)
    try:
        return codec.loads(Inventory, path.read_bytes(), name=str(path))
    except (OSError, EnvcheckError):
        return None


def is_lasting(inventory: Inventory) -> bool:
    """Say whether the same image would say the same tomorrow.

    What was late or killed may have been so because the machine was busy or full.
    """
    compiled = inventory.compiled
    if compiled is None:
        return True
    outcomes = [compiled.outcome, *(p.outcome for p in compiled.assemblers)]
    outcomes += [e.imported for e in compiled.extensions if e.imported is not None]
    if compiled.triton is not None:
        outcomes += [compiled.triton.outcome, *(c.outcome for c in compiled.triton.compilations)]
    if compiled.cuda is not None:
        outcomes += [compiled.cuda.outcome, *(k.outcome for k in compiled.cuda.kernels)]
    return not any(o.status == "timed-out" or o.signal in ("SIGKILL", "SIGALRM") for o in outcomes)


def keep(name: str, inventory: Inventory) -> None:
    """Keep facts; where that is not possible they are gathered again next time."""
    path = _file(name)
    with suppress(OSError, EnvcheckError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, codec.dumps(inventory).encode())


def _file(name: str) -> Path:
    return cache_folder() / "facts" / f"{name}.json"
