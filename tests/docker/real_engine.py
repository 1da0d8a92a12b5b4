"""An engine for the tests: the one that answers, or one of their own; and what they leave behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from envcheck.engine import docker
from envcheck.engine.container import LABEL

PREFIX = "envcheck-"


class Unavailable(Exception):
    """Says what this machine lacks."""


class Started:
    """A context with the address of an engine: the one there is, or one of our own."""

    def __init__(self, folder: Path, *, always: bool = False) -> None:
        self.folder = folder
        self.always = always
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> str:
        if not self.always:
            try:
                found = docker.connect()
            except docker.FileUnavailable:
                pass
            else:
                found.close()
                return os.environ.get("DOCKER_HOST") or docker._context_host()
        if shutil.which("dockerd") is None or os.geteuid() != 0:
            message = "no engine answers, and there is no dockerd to start as root"
            raise Unavailable(message)
        sock = self.folder / "docker.sock"
        command = ["dockerd", "--data-root", str(self.folder / "data")]
        command += ["--exec-root", str(self.folder / "exec"), "-H", f"unix://{sock}"]
        command += ["--pidfile", str(self.folder / "pid")]
        if self.always:
            # It stands beside the other engine, whose network it would take down.
            command = ["unshare", "--net", *command, "--bridge=none", "--iptables=false"]
        log = (self.folder / "log").open("wb")
        # A session of its own: Ctrl-C is for the tests, which still need it to clean up.
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        for _ in range(300):
            if self.process.poll() is not None:
                break
            with socket.socket(socket.AF_UNIX) as knocking:
                if sock.exists() and knocking.connect_ex(str(sock)) == 0:
                    return f"unix://{sock}"
            time.sleep(0.1)
        said = (self.folder / "log").read_text(errors="replace").splitlines()[-3:]
        self.__exit__()
        message = f"dockerd does not start: {' '.join(said)}"
        raise Unavailable(message)

    def __exit__(self, *_: object) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        unmount(self.folder)


def unmount(folder: Path) -> None:
    """Undo what an engine has mounted below a folder, which keeps it from being removed."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    for place in [line.split(" ")[1] for line in reversed(lines)]:
        if Path(place.encode().decode("unicode_escape")).is_relative_to(folder / "."):
            subprocess.run(["umount", "-l", place], check=False)


class Images:
    """What an engine held before the tests, to which it is brought back after them."""

    def __init__(self, engine: docker.Docker) -> None:
        self.engine = engine
        self.ids, self.tags = self._now()

    def _now(self) -> tuple[set[str], dict[str, str]]:
        images = self.engine._client.images.list(all=True)
        return {i.id for i in images}, {tag: i.id for i in images for tag in i.tags}

    def restore(self) -> None:
        """Remove containers of guests, new images and names; give moved names back."""
        api = self.engine._client.api
        for found in api.containers(all=True, filters={"label": LABEL}):
            api.remove_container(found["Id"], v=True, force=True)
        ids, tags = self._now()
        for tag, image in tags.items():
            before = self.tags.get(tag)
            if tag.startswith(PREFIX) and before != image:
                if before is not None and before in ids:
                    api.tag(before, *tag.rsplit(":", 1))
                else:
                    api.remove_image(tag, force=True)
        for image in self.engine._client.images.list(filters={"dangling": True}):
            if image.id not in self.ids:
                api.remove_image(image.id, force=True)
