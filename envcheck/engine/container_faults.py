"""What keeps a guest from running in a container, in words that help."""

from __future__ import annotations

from envcheck.engine.protocol import ImageFacts
from envcheck.errors import EnvcheckError, FileUnavailable


def refused(said: str) -> EnvcheckError:
    """Return the error for what the engine says of a container."""
    if "exec format error" in said:
        return FileUnavailable(
            "the image's Python is for another CPU architecture than this machine",
            remedy="an image for this machine, or a machine for this image",
        )
    if "no space left on device" in said:
        return FileUnavailable(
            "the disk is full where the engine keeps containers",
            remedy="docker container prune; docker builder prune",
        )
    if "could not select device driver" in said or "nvidia-container-cli" in said:
        return FileUnavailable(
            f"the engine cannot give a card to a container: {said}",
            remedy="install the NVIDIA container toolkit on the host (nvidia-ctk runtime configure)",
        )
    if "mounts denied" in said.lower() or "bind source path does not exist" in said:
        return FileUnavailable(
            "the engine cannot see this machine's temporary folder",
            remedy="set TMPDIR to a folder that the engine shares",
        )
    return EnvcheckError(f"the engine refuses the guest's container: {said}", remedy="docker info")


def no_answer(python: str, code: int, output: str) -> EnvcheckError:
    """Return the error for a guest that wrote nothing."""
    last = " ".join(output.splitlines()[-3:]) or "it said nothing"
    if "exec format error" in output:
        return refused(output)
    message = f"{python}: the guest ended with code {code} and wrote no inventory: {last}"
    return EnvcheckError(message, remedy="ENVCHECK_DEBUG=1 shows more; please report it")


def no_python(image: ImageFacts, python: str | None, old: str | None) -> FileUnavailable:
    """Return the error for an image without a usable interpreter."""
    name = image.id[:19]
    if old is not None:
        message = f"{name}: Python {old} is too old"
        return FileUnavailable(message, remedy="an image with Python 3.10 or newer")
    what = f"no interpreter {python}" if python is not None else "no Python"
    message = f"{name}: {what} in the image (neither on PATH nor in the usual places)"
    remedy = "--python PATH names it; without any, docker save IMAGE and envcheck scan the archive"
    return FileUnavailable(message, remedy=remedy)
