"""Requirements of a user become a lock with the hash of every file, resolved by uv.

Nothing of what is resolved is built or run on this machine: only wheels count, and what must
be compiled is an extension. The index is that of pip's configuration; where there are several
the first that has a package decides, which is uv's rule, and safer than pip's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from envcheck import atomic
from envcheck.engine import pip_config as pip
from envcheck.errors import EnvcheckError, FileUnavailable, UsageError

LEAST_PYTHON = "3.10"
"""What a lock holds for where the Python of the base is not known; every newer one, too."""
_DEADLINE = 600
_CAUSE = 600
_MARK = "# Written by envcheck for "
_FLAGS = (
    *("--quiet", "--universal", "--generate-hashes", "--no-header", "--no-annotate"),
    *("--no-emit-index-url", "--no-emit-find-links"),
    *("--python", sys.executable),
)


def lock(
    requirements: Path,
    *,
    torch: str,
    python: str = LEAST_PYTHON,
    pip_config: Path | None = None,
    ca_file: Path | None = None,
) -> Path:
    """Return `<requirements>.lock`, resolved anew when what it was resolved from has changed.

    torch of this version is added unless the file names torch. Raises FileUnavailable without
    uv or what was wanted of the index, UsageError for requirements that cannot be locked.
    """
    path = requirements.with_name(requirements.name + ".lock")
    texts = list(_texts(requirements, set()))
    named = re.search(r"^torch *(?:$|[^\w. -])", "\n".join(texts), re.MULTILINE | re.IGNORECASE)
    added = "torch" if named else f"torch=={torch}"
    digest = hashlib.sha256("\0".join((added, python, *texts)).encode()).hexdigest()
    header = f"{_MARK}sha256:{digest}, which is over {requirements.name}, torch and Python.\n"
    old = _old(path)
    if old.startswith(header):
        return path
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        output = Path(folder, "lock.txt")
        output.write_text(old, encoding="utf-8")  # pins that still fit are kept
        command = ["pip", "compile", requirements.name, "-", *_FLAGS, "--no-build"]
        command += ["--python-version", python, "--output-file", str(output)]
        variables = pip.variables(pip_config, ca_file)
        _run(command, added, variables, folder=requirements.parent, what=requirements)
        made = output.read_text(encoding="utf-8").splitlines(keepends=True)
    pins = "".join(line for line in made if not line.startswith("#"))
    _require_portable(pins, requirements)
    atomic.write(path, (header + pins).encode())
    return path


def lock_extensions(
    wanted: Sequence[str],
    output: Path,
    *,
    pip_config: Path | None = None,
    ca_file: Path | None = None,
) -> None:
    """Write releases that are built in the image to `output`, each with its hashes.

    Those without are asked of the index, and their dependencies are not: so no `setup.py`
    is run to learn them. Raises what `lock` raises.
    """
    bare = [line for line in wanted if "--hash=" not in line]
    text = "".join(f"{line}\n" for line in wanted if "--hash=" in line)
    if bare:
        with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
            found = Path(folder, "lock.txt")
            command = ["pip", "compile", "-", *_FLAGS, "--no-deps"]
            command += ["--python-version", LEAST_PYTHON, "--output-file", str(found)]
            variables = pip.variables(pip_config, ca_file)
            what = Path("extensions")
            _run(command, "\n".join(bare), variables, folder=Path(folder), what=what)
            pins = found.read_text(encoding="utf-8")
        _require_portable(pins, what)
        text += pins
    atomic.write(output, text.encode())


def _texts(path: Path, seen: set[Path]) -> Iterator[str]:
    """Yield a file of requirements, and those on this machine that it includes."""
    if path.resolve() in seen or not path.is_file():
        return
    seen.add(path.resolve())
    text = _read(path)
    yield text
    option = r"^(?:-r|-c|--requirement|--constraint)[ \t=]*(\S+)"
    for name in re.findall(option, text, re.MULTILINE):
        yield from _texts(path.parent / name, seen)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no UTF-8"
        message = f"{path}: cannot be read: {reason}"
        raise UsageError(message, remedy="name a text file that is there") from None


def _old(path: Path) -> str:
    """Return the lock that is there; raises UsageError for one that somebody else wrote."""
    text = _read(path) if path.exists() else ""
    if text.strip() and not text.startswith(_MARK):
        message = f"{path}: is there, and was not written by envcheck"
        raise UsageError(message, remedy=f'lock = "{path.name}", or move it away')
    return text


def _command() -> list[str]:
    """Return the command for uv; raises FileUnavailable without one."""
    found = shutil.which("uv")
    if found is not None:
        return [found]
    if importlib.util.find_spec("uv") is None:
        message = "uv is not installed, which makes the lock of requirements"
        raise FileUnavailable(message, remedy="pip install uv")
    return [sys.executable, "-m", "uv"]


def _run(
    arguments: list[str], wanted: str, variables: dict[str, str], *, folder: Path, what: Path
) -> None:
    """Run uv in `folder`; raises FileUnavailable or UsageError with what it said."""
    # Without this it may fetch a whole Python, and draws with colours.
    variables = dict(variables, UV_PYTHON_DOWNLOADS="never", NO_COLOR="1")
    try:
        done = subprocess.run(
            [*_command(), *arguments],
            cwd=folder,
            env=variables,
            input=f"{wanted}\n".encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"{what}: resolving took more than {_DEADLINE} s"
        raise FileUnavailable(message, remedy="look at the index and the network") from None
    except OSError as error:
        message = f"uv cannot be run: {error.strerror}"
        raise FileUnavailable(message, remedy="pip install uv") from None
    if done.returncode:
        raise _fault(done.stderr.decode("utf-8", "replace"), what)


def _fault(said: str, what: Path) -> EnvcheckError:
    """Turn what uv said, with the lines that it draws, into one line and a remedy."""
    lines = [re.sub(r"[^ -~]+", "", line).strip() for line in said.splitlines()]
    words = " ".join(line for line in lines if line and not line.startswith("warning:"))
    words = re.sub(r"\s*\bcause: ", ": ", words.removeprefix("error: "))
    cause = pip.without_credentials(words)[:_CAUSE] or "uv gave no reason"
    if "Couldn't parse" in said:
        return UsageError(f"{what}: {cause}", remedy=f"correct {what}")
    if "Wheels are required" in said:
        remedy = "what has no wheel is built as an extension: requirement = ... in [[extensions]]"
    elif re.search(r"\b40[13]\b", said):
        remedy = "an index-url with user and password in the file that pip_config names"
    else:
        remedy = f"correct {what}, or index-url and ca_file"
    return FileUnavailable(f"{what}: not resolved: {cause}", remedy=remedy)


def _require_portable(pins: str, requirements: Path) -> None:
    """Refuse what no image could install, and passwords; raises UsageError."""
    for pin in filter(None, pins.replace("\\\n", " ").splitlines()):
        name = pip.without_credentials(pin.split(" --hash=")[0].strip())
        hashed = "--hash=" in pin
        if re.search(r"@ *file:", pin) or not (hashed or "==" in name):
            reason = "comes from no index"
            remedy = f'source = "..." in [[extensions]] instead of a line in {requirements.name}'
        elif not hashed:
            reason = "the index has no hash of it"
            remedy = f"write {name} --hash=sha256:..."
        elif pip.without_credentials(pin) != pin:
            reason = "its address holds a password, and so would the lock"
            remedy = "an index-url in the file that pip_config names"
        else:
            continue
        message = f"{requirements}: {name}: {reason}"
        raise UsageError(message, remedy=remedy)
