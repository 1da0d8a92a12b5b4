"""An engine for the tests: the one that answers, or one of their own; and what they leave behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

from envcheck.engine import docker, docker_host
from envcheck.engine.container import LABEL


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
                return docker_host.address()
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
        if folder in Path(place.encode().decode("unicode_escape")).parents:
            subprocess.run(["umount", "-l", place], check=False)


class Images:
    """What these tests build: it has their label, and names that it took are given back."""

    def __init__(self, engine: docker.Docker) -> None:
        self.engine = engine
        self.session = uuid.uuid4().hex[:12]
        """A tag of these tests, which those of others do not take."""
        self.label = f"envcheck.tests={self.session}"
        self.pulled: list[str] = []
        images = engine._client.images.list()
        self.tags = {tag: image.id for image in images for tag in image.tags}

    def restore(self) -> None:
        """Remove what has the label; others may build with the same engine meanwhile."""
        api = self.engine._client.api
        ours = self.engine._client.images.list(filters={"label": self.label})
        taken = [tag for image in ours for tag in image.tags]
        for tag in taken:
            api.remove_image(tag, force=True)
        rest = self.engine._client.images.list(filters={"label": self.label})
        for reference in (*(image.id for image in rest), *self.pulled):
            api.remove_image(reference, force=True)
        known = {image.id for image in self.engine._client.images.list(all=True)}
        for tag in set(taken) & set(self.tags):
            if self.tags[tag] in known:
                api.tag(self.tags[tag], *tag.rsplit(":", 1))


def guests(engine: docker.Docker, folder: Path) -> list[str]:
    """Return the containers that see something of a folder: others may run guests, too."""
    found = engine._client.api.containers(all=True, filters={"label": LABEL})
    return [
        each["Id"]
        for each in found
        if any(Path(m.get("Source", "")).is_relative_to(folder) for m in each["Mounts"])
    ]
