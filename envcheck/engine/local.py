"""The environment of an interpreter on this machine: a venv, a rental, a laptop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from envcheck import bundle
from envcheck.core import codec
from envcheck.errors import EnvcheckError, FileUnavailable
from envcheck.guest.collect import Collected

_DEADLINE = 300
_TAIL = 400


def collect(python: str) -> Collected:
    """Run the guest with `python`; raises FileUnavailable when that is no usable interpreter."""
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        control = Path(folder)
        entry = bundle.stage(control / "bundle")
        request = {"schema": "envcheck/request/v1", "collect": True}
        (control / "request.json").write_text(json.dumps(request), encoding="utf-8")
        said = _run([python, "-B", str(entry), folder], python)
        answer = control / "inventory.json"
        if not answer.exists():
            message = f"{python}: the guest wrote no inventory: {said or 'it said nothing'}"
            raise EnvcheckError(message, remedy=f"{python} --version (3.10 or newer is needed)")
        return codec.loads(Collected, answer.read_bytes(), name=f"inventory of {python}")


def _run(command: list[str], python: str) -> str:
    """Run one command quietly and return the end of what it said."""
    _require_version(python)
    try:
        done = subprocess.run(  # noqa: PLW1510 - the answer is a file, the exit code is not
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEADLINE,
        )
    except subprocess.TimeoutExpired:
        message = f"{python}: reading its environment took more than {_DEADLINE} s"
        raise EnvcheckError(message, remedy="look for a hanging file system") from None
    text = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
    return " ".join(text[-_TAIL:].splitlines()[-3:])


def _require_version(python: str) -> None:
    """Refuse what is no Python of at least 3.10; raises FileUnavailable."""
    if python == sys.executable:
        return
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(  # noqa: PLW1510
            [python, "-I", "-S", "-c", probe],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )
    except (OSError, ValueError) as error:
        message = f"{python}: cannot be run: {getattr(error, 'strerror', None) or error}"
        raise FileUnavailable(message, remedy="--python PATH of an interpreter") from None
    except subprocess.TimeoutExpired:
        message = f"{python}: does not answer as a Python interpreter"
        raise FileUnavailable(message, remedy="--python PATH of an interpreter") from None
    version = done.stdout.decode("ascii", "replace").strip()
    parts = version.split(".")
    if done.returncode or len(parts) != 2 or not all(p.isdigit() for p in parts):
        message = f"{python}: is not a Python interpreter"
        raise FileUnavailable(message, remedy="--python PATH of an interpreter")
    if (int(parts[0]), int(parts[1])) < (3, 10):
        message = f"{python}: Python {version} is too old"
        raise FileUnavailable(message, remedy="use an environment with Python 3.10 or newer")


def resolve(python: str) -> str:
    """Return the interpreter to run for a path, a command name or an environment's folder."""
    inside = os.path.join(python, "bin", "python")
    return inside if os.path.isdir(python) and os.path.exists(inside) else python
