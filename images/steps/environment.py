"""Install the locked packages into the environment, the same bytes every time.

Runs inside the base with its own Python; standard library only, Python >= 3.10. A line
that starts with `envcheck:` is what the user is told when the build fails.

All steps take their places from variables; without them they are those of the Dockerfile.

    ENVCHECK_ENVIRONMENT  the venv; where it is set, nothing outside of it is touched
    ENVCHECK_TOOLCHAIN    the folder for CUDA_HOME, sources, wheels and extensions.json
    ENVCHECK_LOCK         the packages, with hashes
    ENVCHECK_SOURCES      the builder's lock and the extensions
    ENVCHECK_WHEELS       the built extensions
    ENVCHECK_PIP_CONFIG   a pip.conf, and ENVCHECK_CA a bundle of certificates, if they exist
"""
# ruff: noqa: INP001 - a step of a Dockerfile, not a module of the package

from __future__ import annotations

import contextlib
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

IN_IMAGE = "ENVCHECK_ENVIRONMENT" not in os.environ
ENVIRONMENT = os.environ.get("ENVCHECK_ENVIRONMENT", "/opt/environment")
TOOLCHAIN = os.environ.get("ENVCHECK_TOOLCHAIN", "/opt/toolchain")
SOURCES = os.environ.get("ENVCHECK_SOURCES", "/run/build/sources")
WHEELS = os.environ.get("ENVCHECK_WHEELS", "/run/build/wheels")
_LOCK = os.environ.get("ENVCHECK_LOCK", "/run/build/lock/lock.txt")
_CA = os.environ.get("ENVCHECK_CA", "/run/build/secrets/ca")
_PIP_CONFIG = os.environ.get("ENVCHECK_PIP_CONFIG", "/run/build/secrets/pip.conf")
# The folders of an image whose times the steps change.
_AROUND = ("/opt", "/home", "/tmp", "/etc") if IN_IMAGE else ()  # noqa: S108


def main() -> None:
    """Make the venv, install the lock, compile, normalise."""
    try:
        import ensurepip  # noqa: F401, PLC0415
        import venv  # noqa: PLC0415
    except ImportError as error:
        sys.exit(f"envcheck: base-without-venv: {error}")
    venv.create(ENVIRONMENT, with_pip=False, symlinks=True)
    with tempfile.TemporaryDirectory() as folder:
        install(folder, "--only-binary=:all:", "--require-hashes", "-r", _LOCK)
    precompile()
    shutil.copyfile(_LOCK, f"{ENVIRONMENT}/lock.txt")
    if IN_IMAGE:
        add_user()
    normalise(ENVIRONMENT)


def install(folder: str, *arguments: str) -> None:
    """Run `pip install` and end with its exit code when it fails."""
    make_pip(folder)
    log = Path(folder, "pip.log")
    command = pip_command("install", "--no-compile", "--log", str(log), *arguments)
    done = subprocess.run(command, env=pip_variables(folder), check=False)  # noqa: S603
    if done.returncode:
        # Of an index that refuses, pip says only in its log that it does, not on the screen.
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        refused = [line for line in lines if "Could not fetch URL" in line]
        sys.stdout.write("".join(f"{line}\n" for line in refused[:5]))
        sys.exit(done.returncode)


def make_pip(folder: str) -> None:
    """Unpack the pip that Python carries for new venvs: the environment itself needs none."""
    import ensurepip  # noqa: PLC0415

    places = (
        Path(ensurepip.__file__).parent / "_bundled",
        sysconfig.get_config_var("WHEEL_PKG_DIR"),
    )
    wheels = [w for place in places if place for w in sorted(Path(place).glob("pip-*.whl"))]
    if not wheels:
        sys.exit("envcheck: base-without-venv: ensurepip brings no pip")
    with zipfile.ZipFile(wheels[-1]) as archive:
        archive.extractall(folder)


def pip_command(*arguments: str) -> list[str]:
    """Return the command that works on the environment."""
    return [f"{ENVIRONMENT}/bin/python", "-m", "pip", *arguments]


def pip_variables(folder: str) -> dict[str, str]:
    """Return the variables for the pip in `folder`, with the secrets that are mounted."""
    variables = dict(os.environ, PIP_NO_INPUT="1")
    if IN_IMAGE:
        variables["PIP_NO_CACHE_DIR"] = "1"
    # What a user's configuration may say for everyday use; pip takes an empty value for none.
    variables.update(PIP_CONSTRAINT=os.devnull, PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0")
    variables.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_PROGRESS_BAR="off", PIP_RETRIES="3")
    variables.update(PIP_ROOT_USER_ACTION="ignore", PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=folder)
    if os.path.exists(_PIP_CONFIG):
        variables["PIP_CONFIG_FILE"] = _PIP_CONFIG
    if os.path.exists(_CA):
        variables["PIP_CERT"] = _CA
    return variables


def precompile() -> None:
    """Compile every module that is not yet, bound to its source by hash instead of by time.

    Without this, each start of a container would compile torch anew: it runs as a user
    who may not write here. A fixed share of the files for each process, in a fixed order
    and with a fixed hash seed, makes the bytes repeatable.
    """
    command = [sys.executable, "-B", os.path.abspath(__file__)]
    variables = dict(os.environ, PYTHONHASHSEED="0")
    for running in [subprocess.Popen([*command, share], env=variables) for share in "01"]:  # noqa: S603
        if running.wait():
            sys.exit("envcheck: compiling the modules failed")


def precompile_share(share: str) -> None:
    """Compile one of two shares: torch, which is half of everything, or the rest."""
    for where, folders, names in os.walk(f"{ENVIRONMENT}/lib"):
        folders.sort()
        for path in (os.path.join(where, name) for name in sorted(names) if name.endswith(".py")):
            cached = importlib.util.cache_from_source(path)
            if ("/site-packages/torch/" in path) != (share == "0") or os.path.exists(cached):
                continue
            # Some packages ship templates and files for newer Pythons, which do not compile.
            with contextlib.suppress(py_compile.PyCompileError, UnicodeDecodeError):
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(path, cached, doraise=True, invalidation_mode=mode)


def add_user() -> None:
    """Add the user `job` by hand: useradd would write today's date into /etc/shadow."""
    for path, line in (
        ("/etc/passwd", "job:x:10001:10001::/home/job:/bin/sh\n"),
        ("/etc/group", "job:x:10001:\n"),
    ):
        with open(path, "a+", encoding="utf-8") as handle:
            handle.seek(0)
            if "\njob:" not in handle.read():
                handle.write(line)
    os.makedirs("/home/job", exist_ok=True)
    os.chown("/home/job", 10001, 10001)


def normalise(tree: str) -> None:
    """Set every time in `tree`, and of the folders of the image around it, to the epoch."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    found = [os.path.join(where, n) for where, ds, fs in os.walk(tree) for n in (*ds, *fs)]
    # Setting a time copies the whole file into the layer: not those of the layer below.
    for path in (*found, tree, *_AROUND):
        if os.lstat(path).st_mtime != epoch:
            os.utime(path, (epoch, epoch), follow_symlinks=False)


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else precompile_share(sys.argv[1])
