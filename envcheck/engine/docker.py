"""Docker, or what answers like it: images are built with BuildKit, the rest is the API."""

from __future__ import annotations

import os
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from envcheck.core.request import Request
from envcheck.engine import buildkit, container, content_digest, docker_host
from envcheck.engine.content_digest import Content, Read
from envcheck.engine.protocol import Answer, Built, ImageFacts, Limits, Progress, Step
from envcheck.engine.recipe import Recipe
from envcheck.engine.stream import as_file
from envcheck.errors import EnvcheckError, FileUnavailable, UsageError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image

_Result = TypeVar("_Result")
_ANSWER_WITHIN = 60
_NO_REFERENCE = (
    "invalid reference format",
    "invalid checksum digest",
    "Resource ID was not provided",
)
_START = "start Docker, or set DOCKER_HOST (podman: unix:///run/user/UID/podman/podman.sock)"


class Docker:
    """An engine that answers; `connect` makes it."""

    name = "docker"
    environment = "/opt/environment"
    toolchain = "/opt/toolchain"
    scratch = "/tmp"  # noqa: S108 - of the container

    def __init__(self, client: DockerClient, *, host: str, builder: str | None) -> None:
        self._client = client
        self._host = host
        self._builder = builder
        about = client.version()
        self._architecture = str(about.get("Arch", ""))
        parts = [str(part.get("Name", "")) for part in about.get("Components") or ()]
        self._is_podman = any("podman" in part.lower() for part in parts)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def seen(self, name: str, path: Path) -> str:  # noqa: ARG002 - wherever it lies here
        """Return where a guest sees a folder of `folders`."""
        return f"{container.INSIDE}/{name}"

    def build(
        self, recipe: Recipe, *, log: Path, progress: Progress, stage: str = "final"
    ) -> Built:
        """Build one stage of a recipe; raises FileUnavailable with what is not to be had."""
        podman = self._host if self._is_podman else None
        client = buildkit.find(builder=self._builder, podman=podman)
        local = None if self._builder is not None else self._local(recipe.base)
        known = _digests(local) if local is not None else ()
        # An image that never was in a registry has no digest there; its id is as good a pin.
        is_local = local is not None and recipe.base_digest == local.id
        base = recipe.base if is_local else recipe.base_reference
        try:
            return buildkit.build(
                client, recipe, base=base, stage=stage, log=log, progress=progress
            )
        except FileUnavailable as error:
            if not known or recipe.base_digest in {None, *known} or "base" not in error.message:
                raise
            message = (
                f"{recipe.base}: the one here is {known[0]}, not {recipe.base_digest}, and that"
                f" cannot be had (log: {log})"
            )
            remedy = f"docker pull {recipe.base_reference}, or pin the one that is here"
            raise FileUnavailable(message, remedy=remedy) from None

    def inspect(self, reference: str, *, progress: Progress | None = None) -> ImageFacts:
        """Describe an image, pulling it when it is not here."""
        image = self._local(reference)
        if image is None:
            self._pull(reference, progress)
            image = self._local(reference)
        if image is None:
            message = f"{reference}: pulled, and still not here"
            raise EnvcheckError(message, remedy="docker images")
        facts = image.attrs
        config = facts.get("Config") or {}
        pairs = (line.partition("=") for line in config.get("Env") or ())
        return ImageFacts(
            id=str(image.id),
            digests=tuple(facts.get("RepoDigests") or ()),
            architecture=str(facts.get("Architecture", "")),
            os=str(facts.get("Os", "")),
            size=int(facts.get("Size", 0)),
            user=str(config.get("User", "")),
            variables={name: value for name, _, value in pairs},
            labels=dict(config.get("Labels") or {}),
            layers=tuple((facts.get("RootFS") or {}).get("Layers") or ()),
        )

    def run_guest(
        self,
        reference: str,
        request: Request,
        *,
        limits: Limits,
        python: str | None = None,
        folders: Mapping[str, Path] | None = None,
    ) -> Answer:
        """Run the guest in an image with its own Python, shut off from everything else."""
        if not self._host.startswith(("unix://", "http+unix://", "npipe://")):
            message = f"the engine at {self._host} is another machine: it cannot see the guest here"
            raise FileUnavailable(message, remedy="run envcheck where the engine is")
        image = self.inspect(reference)
        if image.architecture != self._architecture:
            message = f"{reference}: an image for {image.architecture}, not {self._architecture}"
            remedy = f"docker pull --platform {image.os}/{self._architecture} {reference}"
            raise FileUnavailable(message, remedy=remedy)
        return container.run_guest(
            self._client, image, request, limits=limits, python=python, folders=folders or {}
        )

    def content(self, reference: str, *, read: Read | None = None) -> Content:
        """Read every entry of an image for its content digest."""
        with (
            self._created(reference) as name,
            as_file(self._call(lambda: self._client.api.export(name))) as stream,
        ):
            try:
                return content_digest.of_export(stream, read)
            except ValueError as error:
                message = f"{reference}: the engine's export is not whole: {error}"
                raise EnvcheckError(message, remedy="docker info") from None

    def read_file(self, reference: str, path: str, *, limit: int = 16 << 20) -> bytes:
        """Return one regular file of an image."""
        with self._created(reference) as name:
            try:
                pieces, status = self._call(lambda: self._client.api.get_archive(name, path))
            except FileUnavailable:
                message = f"{reference}: has no {path}"
                raise FileUnavailable(message, remedy="is this the image that was meant?") from None
            with as_file(pieces) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
                member = archive.next()
                handle = None
                if member is not None and member.isreg():
                    if member.size > limit:
                        message = (
                            f"{reference}: {path} has {status['size']} bytes, more than {limit}"
                        )
                        raise EnvcheckError(message)
                    handle = archive.extractfile(member)
                if handle is not None:
                    return handle.read()
        message = f"{reference}: {path} is not a regular file"
        raise EnvcheckError(message)

    def _local(self, reference: str) -> Image | None:
        from docker.errors import ImageNotFound

        try:
            return self._call(lambda: self._client.images.get(reference), missing=ImageNotFound)
        except ImageNotFound:
            return None

    def _pull(self, reference: str, progress: Progress | None) -> None:
        """Pull an image, layer by layer a step."""
        if reference.startswith("sha256:"):
            message = f"{reference}: no such image here, and an id cannot be pulled"
            raise FileUnavailable(message, remedy="docker images --no-trunc")
        tag = None
        if "@" not in reference and ":" not in reference.rsplit("/", 1)[-1]:
            tag = "latest"
        try:
            events = self._call(
                lambda: self._client.api.pull(reference, tag=tag, stream=True, decode=True)
            )
        except EnvcheckError as error:
            raise _not_pulled(reference, error.message) from None
        for event in events:
            if "error" in event:
                raise _not_pulled(reference, str(event["error"]))
            if progress is not None and "id" in event:
                line = str(event.get("status", ""))
                state = "done" if line in {"Pull complete", "Already exists"} else "running"
                name = f"pull {reference}"
                progress(Step(id=str(event["id"]), name=name, state=state, line=line))

    @contextmanager
    def _created(self, reference: str) -> Iterator[str]:
        """Make a container that is never started, and remove it."""
        image = self.inspect(reference)
        name = f"envcheck-{uuid.uuid4().hex}"
        labels = {container.LABEL: "1"}
        made = late = False
        try:
            # The command is never run; an image without one cannot be made into a container.
            self._call(
                lambda: self._client.api.create_container(
                    image.id, command=["-"], name=name, labels=labels
                )
            )
            made = True
            yield name
        except KeyboardInterrupt:
            late = not made
            raise
        finally:
            container.remove(self._client, name, may_come=late)

    def _call(
        self, what: Callable[[], _Result], *, missing: type[Exception] | None = None
    ) -> _Result:
        """Do one call of the API; the library's errors become envcheck's."""
        from docker.errors import APIError, DockerException
        from requests.exceptions import RequestException

        try:
            return what()
        except (DockerException, RequestException) as error:
            if missing is not None and isinstance(error, missing):
                raise
            said = str(error.explanation or error) if isinstance(error, APIError) else str(error)
            if isinstance(error, APIError) and error.status_code == 404:
                raise FileUnavailable(said) from None
            if any(text in said for text in _NO_REFERENCE):
                message = f"no image has such a name: {said}"
                raise UsageError(
                    message, remedy="NAME:TAG, or NAME@sha256:... (64 hex digits)"
                ) from None
            message = f"the engine at {self._host} failed: {said}"
            raise EnvcheckError(message, remedy="docker info") from None


def connect(*, builder: str | None = None) -> Docker:
    """Connect to the engine that the docker command would use; raises FileUnavailable."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        message = "the Docker library for Python is not installed"
        raise FileUnavailable(message, remedy="pip install docker") from None
    host = docker_host.address()
    try:
        docker_host.knock(host)
        variables = dict(os.environ, DOCKER_HOST=host)
        client = docker.from_env(environment=variables, timeout=_ANSWER_WITHIN)
        try:
            return Docker(client, host=host, builder=builder)
        except BaseException:
            client.close()
            raise
    except (DockerException, OSError, ValueError) as error:
        message = f"no engine answers at {host}: {docker_host.innermost(error)}"
        raise FileUnavailable(message, remedy=_START) from None


def _digests(image: Image) -> tuple[str, ...]:
    """Return the digests that an image has in registries, then its id."""
    found = [str(name).partition("@")[2] for name in image.attrs.get("RepoDigests") or ()]
    return (*found, str(image.id))


def _not_pulled(reference: str, said: str) -> FileUnavailable:
    message = f"{reference}: is not here and cannot be pulled: {said}"
    return FileUnavailable(message, remedy="docker pull it by hand (docker login first, if needed)")
