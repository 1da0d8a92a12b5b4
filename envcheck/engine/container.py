"""One run of the guest in a container that may do nothing but read, compute and answer."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcheck import bundle
from envcheck.core import codec
from envcheck.core.request import Request
from envcheck.core.variables import SCRATCH
from envcheck.engine import container_faults
from envcheck.engine.protocol import Answer, ImageFacts, Limits
from envcheck.errors import EnvcheckError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.types import DeviceRequest

LABEL = "envcheck.guest"
INSIDE = "/envcheck"
_TAIL = 4000
LARGEST_ANSWER = 512 << 20
_TOO_OLD = 97
_LATE = 5.0
"""Seconds in which an engine finishes what it began for a client that went away."""
PYTHONS = (
    "python3",
    "python",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
)
# Any Python since 2.7 can read this: an old one is to say its version, not to trip over syntax.
LAUNCHER = """\
import json, os, sys
with open(sys.argv[2] + "/python.json", "w") as handle:
    json.dump({"version": list(sys.version_info[:3]), "path": sys.executable}, handle)
if sys.version_info < (3, 10):
    sys.exit(97)
os.execv(sys.executable, [sys.executable, "-E", "-S", "-B", sys.argv[1], sys.argv[2]])
"""
# The guest looks at files; a card, and the runtime's check for one, are not its business.
_NO_CARD = {"NVIDIA_VISIBLE_DEVICES": "void"}
_CARD = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
# The image's own variables stay what they are, for a job would find its caches by them.
_OWN = {
    "PYTHONDONTWRITEBYTECODE": "1",
    SCRATCH: "/tmp",  # noqa: S108 - inside the container, its only writable folder
}


def run_guest(
    client: DockerClient,
    image: ImageFacts,
    request: Request,
    *,
    limits: Limits,
    python: str | None,
    folders: Mapping[str, Path],
) -> Answer:
    """Start the guest with the image's own Python; raises FileUnavailable without a usable one."""
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        staged, control = Path(folder, "bundle"), Path(folder, "control")
        entry = bundle.stage(staged).relative_to(staged)
        (staged / "launch.py").write_text(LAUNCHER, encoding="ascii")
        control.mkdir()
        (control / "request.json").write_text(codec.dumps(request), encoding="utf-8")
        open_to_all(staged)
        # The image's user is unknown here; the folder above keeps other users of this host out.
        control.chmod(0o777)
        mounts = {"bundle": (staged, "ro"), "control": (control, "rw")}
        mounts |= {name: (path.resolve(), "ro") for name, path in folders.items()}
        command = [f"{INSIDE}/bundle/launch.py", f"{INSIDE}/bundle/{entry}", f"{INSIDE}/control"]
        old = None
        for candidate in (python,) if python is not None else PYTHONS:
            chosen = options(image, limits, mounts) | {
                "entrypoint": [candidate],
                "command": ["-E", "-S", "-B", *command],
            }
            started = time.monotonic()
            with _container(client, chosen) as container:
                if not _start(container, candidate):
                    continue
                code = _wait(container, limits)
                output = _output(container)
            if code == _TOO_OLD and (version := _version(control)) is not None:
                old = version
                continue
            document = read(control / "inventory.json")
            if document is None:
                raise container_faults.no_answer(candidate, code, output)
            seconds = time.monotonic() - started
            return Answer(document=document, output=output, python=candidate, seconds=seconds)
    raise container_faults.no_python(image, python, old)


def options(
    image: ImageFacts, limits: Limits, mounts: Mapping[str, tuple[Path, str]]
) -> dict[str, Any]:
    """Return everything that a container is made with, but for what it runs."""
    from docker.types import LogConfig, Ulimit

    return {
        "image": image.id,
        # A name of our own: should Ctrl-C come before the engine's answer, it can be removed.
        "name": f"envcheck-{uuid.uuid4().hex}",
        "labels": {LABEL: "1"},
        "environment": _OWN | (_NO_CARD if limits.gpus is None else _CARD),
        "device_requests": _devices(limits.gpus),
        "working_dir": "/",
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": limits.memory,
        "memswap_limit": limits.memory,
        "pids_limit": limits.processes,
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.scratch}"},  # noqa: S108
        "volumes": {
            str(path): {"bind": f"{INSIDE}/{name}", "mode": mode}
            for name, (path, mode) in mounts.items()
        },
        "log_config": LogConfig(type="json-file", config={"max-size": "4m", "max-file": "1"}),
        # An image may declare one, which would run its own commands beside the guest.
        "healthcheck": {"test": ["NONE"]},
    }


def _devices(gpus: str | None) -> list[DeviceRequest]:
    """Return what docker's own client makes of `--gpus all`, `2` or `device=0,GPU-...`."""
    from docker.types import DeviceRequest

    if gpus is None:
        return []
    named = gpus.strip("\"'").removeprefix("device=").split(",") if "device=" in gpus else None
    count = 0 if named else -1 if gpus == "all" else int(gpus)
    return [DeviceRequest(count=count, device_ids=named, capabilities=[["gpu"]])]


@contextmanager
def _container(client: DockerClient, chosen: dict[str, Any]) -> Iterator[Container]:
    """Make a container and remove it, whatever happens, Ctrl-C included."""
    from docker.errors import APIError, DockerException

    made, late = None, False
    try:
        made = client.containers.create(**chosen)
        yield made
    except KeyboardInterrupt:
        late = made is None
        raise
    except APIError as error:
        raise container_faults.refused(str(error.explanation or error)) from None
    except DockerException as error:
        message = f"the engine failed at a container: {error}"
        raise EnvcheckError(message, remedy="docker info") from None
    finally:
        try:
            remove(client, chosen["name"], may_come=late)
        except KeyboardInterrupt:
            remove(client, chosen["name"], may_come=late)
            raise


def remove(client: DockerClient, name: str, *, may_come: bool = False) -> None:
    """End and remove a container with its volumes; one that is not there is well removed.

    One that the engine was still making when we were interrupted may come after we asked for
    its removal: with `may_come` it is waited for.
    """
    from docker.errors import APIError

    until = time.monotonic() + (_LATE if may_come else 0)
    while True:
        try:
            client.api.remove_container(name, v=True, force=True)
        except APIError as error:
            if error.status_code not in {404, 409}:
                raise
            if time.monotonic() < until:
                time.sleep(0.2)
                continue
        return


def _start(container: Container, python: str) -> bool:
    """Start a container; False when the image has no such interpreter."""
    from docker.errors import APIError

    try:
        container.start()
    except APIError as error:
        said = str(error.explanation or error)
        missing = ("executable file not found", "no such file or directory", "not a directory")
        if any(text in said for text in (*missing, "permission denied")) and python in said:
            return False
        raise
    return True


def _wait(container: Container, limits: Limits) -> int:
    """Wait for the end; raises EnvcheckError at the deadline and when memory ran out."""
    from requests.exceptions import ConnectionError as Lost
    from requests.exceptions import Timeout

    try:
        code = int(container.wait(timeout=limits.seconds)["StatusCode"])
    except (Lost, Timeout):
        message = f"the guest took more than {limits.seconds:.0f} s and was ended"
        raise EnvcheckError(
            message, remedy="allow more time, or look for a hanging import"
        ) from None
    container.reload()
    if container.attrs["State"].get("OOMKilled") and code != 0:
        message = f"the guest took more than {limits.memory >> 20} MiB of memory and was ended"
        raise EnvcheckError(message, remedy="allow more memory")
    return code


def _output(container: Container) -> str:
    text: bytes = container.logs(stdout=True, stderr=True, tail=200)
    return text[-_TAIL:].decode("utf-8", "replace").strip()


def read(path: Path) -> bytes | None:
    """Read what a container wrote: a regular file of bounded size, or nothing.

    A link would lead to files of this host, a pipe would hold us for ever.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as handle:
        document = handle.read(LARGEST_ANSWER + 1)
    if len(document) > LARGEST_ANSWER:
        message = f"the guest's answer has more than {LARGEST_ANSWER >> 20} MiB"
        raise EnvcheckError(message, remedy="is this image what it seems to be?")
    return document


def _version(control: Path) -> str | None:
    """Return the version that an interpreter of the image told."""
    document = read(control / "python.json")
    try:
        return ".".join(str(int(part)) for part in json.loads(document or b"")["version"])
    except (ValueError, TypeError, KeyError):
        return None


def open_to_all(folder: Path) -> None:
    """Let every user read what may have been installed with a strict umask."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
