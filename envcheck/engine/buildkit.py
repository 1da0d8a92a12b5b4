"""Builds through a command-line client: it alone speaks BuildKit's session protocol."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from envcheck.engine import child, pip_config
from envcheck.engine import recipe as recipes
from envcheck.engine.build_log import BuildLog, clean
from envcheck.engine.protocol import Built, Progress
from envcheck.engine.recipe import Recipe
from envcheck.errors import FileUnavailable

_ANSWER_WITHIN = 30
USUAL_PLACES = ("/usr/bin", "/usr/local/bin")
"""Where a second docker command may lie that is not the first on PATH."""
_REWRITES_TIMES = (0, 13)
_INSTALL = "install docker-buildx (Debian, Ubuntu) or docker-buildx-plugin, or update Docker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A command that can build with BuildKit, and how it is told."""

    kind: str
    """`buildx`, `buildkit` (built into docker 18.09 to 22) or `podman`."""
    command: tuple[str, ...]
    builder: str | None = None
    rewrites_times: bool = False
    """Whether its BuildKit can set the times in layers, which makes image digests repeatable."""


def find(*, builder: str | None = None, podman: str | None = None) -> Client:
    """Find a client; raises FileUnavailable when none can build.

    `builder` names one of buildx; `podman` is the address of a podman engine, which knows
    no BuildKit: podman itself builds there, and understands the same Dockerfile.
    """
    if podman is not None and builder is None:
        found = shutil.which("podman")
        if found is None:
            message = "the engine is podman, which has no BuildKit, and there is no podman command"
            raise FileUnavailable(message, remedy="install podman, or set DOCKER_HOST to Docker")
        return Client(kind="podman", command=(found, "--url", podman, "build"))
    reasons = []
    for docker in _dockers():
        if _ask(docker, "buildx", "version") is not None:
            version = _buildkit_version(docker, builder)
            command = (docker, "buildx", "build")
            rewrites = version is not None and version >= _REWRITES_TIMES
            return Client(kind="buildx", command=command, builder=builder, rewrites_times=rewrites)
        said = _ask(docker, "version", "--format", "{{.Client.Version}}") or ""
        major = re.match(r"(\d+)\.", said)
        if builder is None and major is not None and 18 < int(major[1]) < 23:
            return Client(kind="buildkit", command=(docker, "build"))
        reasons.append(f"{docker} {said.strip()}".strip())
    if not reasons:
        message = "there is no docker command, and BuildKit builds go through it"
        raise FileUnavailable(message, remedy=_INSTALL)
    wanted = f"the builder {builder}" if builder is not None else "BuildKit"
    message = f"no docker command here can use {wanted}: {', '.join(reasons)} without buildx"
    raise FileUnavailable(message, remedy=_INSTALL)


def build(
    client: Client, recipe: Recipe, *, base: str, stage: str, log: Path, progress: Progress
) -> Built:
    """Build one stage; raises FileUnavailable and EnvcheckError with the cause from the log."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="envcheck-") as folder:
        context = Path(folder, "context")
        context.mkdir()
        recipes.stage_context(recipe, context)
        image_id = Path(folder, "image-id")
        told = command(client, recipe, base=base, stage=stage, image_id=image_id)
        variables = dict(os.environ, BUILDKIT_PROGRESS="plain", BUILDKIT_COLORS="")
        if client.kind == "buildkit":
            variables["DOCKER_BUILDKIT"] = "1"
        seen = BuildLog()
        with child.open_log(log) as handle:
            read = _reader(seen, handle, progress, pip_config.hider(recipe.pip_config))
            code = child.stream([*told, str(context)], variables, read)
        if code:
            raise seen.failure(str(log))
        reference = image_id.read_text(encoding="ascii").strip()
    return Built(
        reference=reference if ":" in reference else f"sha256:{reference}",
        seconds=time.monotonic() - start,
        steps=seen.steps,
        log=log,
        repeatable=client.rewrites_times,
    )


def command(client: Client, recipe: Recipe, *, base: str, stage: str, image_id: Path) -> list[str]:
    """Return the build command without its context."""
    words = [*client.command, "--target", stage, "--iidfile", str(image_id)]
    # A name for each target's newest build: an engine prunes what has none.
    tag = f"envcheck-{recipe.target}:{'latest' if stage == 'final' else stage}"
    if client.kind == "podman":
        words += ["--tag", tag, "--timestamp", str(recipe.epoch), "--format", "docker"]
    else:
        words += ["--progress", "plain"]
        if client.builder is not None:
            words += ["--builder", client.builder]
        if client.rewrites_times:
            words += ["--output", f"type=docker,name={tag},rewrite-timestamp=true"]
        else:
            words += ["--tag", tag, *(["--load"] if client.kind == "buildx" else [])]
        if client.kind == "buildx":
            # Its attestation would hold the time of the build.
            words += ["--provenance=false"]
    for name, path in (("pip-config", recipe.pip_config), ("ca", recipe.ca_file)):
        if path is not None:
            child.require_readable(path)
            words += ["--secret", f"id={name},src={path}"]
    if recipe.network is not None:
        words += ["--network", recipe.network]
        if client.kind == "buildx" and recipe.network == "host":
            words += ["--allow", "network.host"]
    if recipe.no_cache:
        words.append("--no-cache")
    for name, value in recipes.arguments(recipe, base).items():
        words += ["--build-arg", f"{name}={value}"]
    return words


def _reader(
    seen: BuildLog, handle: IO[str], progress: Progress, hide: Callable[[str], str]
) -> Callable[[str], None]:
    def read(line: str) -> None:
        text = hide(clean(line))
        handle.write(text + "\n")
        step = seen.feed(text)
        if step is not None:
            progress(step)

    return read


def _dockers() -> Iterator[str]:
    """Yield every docker command once, those on PATH first."""
    seen = set()
    for folder in (*os.environ.get("PATH", "").split(os.pathsep), *USUAL_PLACES):
        path = shutil.which("docker", path=folder) if folder else None
        if path is not None and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path


def _buildkit_version(docker: str, builder: str | None) -> tuple[int, int] | None:
    """Return the version of the builder's BuildKit, None where it does not tell."""
    said = _ask(docker, "buildx", "inspect", *([builder] if builder is not None else [])) or ""
    match = re.search(
        r"^\s*Buildkit(?: version)?:\s*v?(\d+)\.(\d+)", said, re.MULTILINE | re.IGNORECASE
    )
    return (int(match[1]), int(match[2])) if match is not None else None


def _ask(*command: str) -> str | None:
    """Return what a command prints, None when it fails."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_WITHIN,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.decode("utf-8", "replace")
    # `docker version` fails when the engine does not answer, and still tells its own version.
    tells = done.returncode == 0 or (command[1] == "version" and bool(said.strip()))
    return said if tells else None
