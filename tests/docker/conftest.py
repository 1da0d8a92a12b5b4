"""A real engine, a base image, and an index with a password: started here where none is.

Run with `pytest -m docker`. ENVCHECK_REQUIRE=docker turns a missing engine from a skip into a
failure. ENVCHECK_TEST_BASE names a Debian base with python3 and its venv module; without it
one is pulled, or made by debootstrap.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from building import wheel

from envcheck import targets
from envcheck.engine import buildkit, docker, recipe
from envcheck.engine.recipe import Recipe

PREFIX = "envcheck-test"
PASSWORD = "correct-horse-battery-staple"
MARKER = "marker-in-the-ca-file-4711"
_HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "docker: builds and runs containers with a real engine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "docker" in (config.option.markexpr or "") or is_required()
    for item in items:
        if _HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(900))
            if not asked:
                item.add_marker(pytest.mark.skip(reason="builds images: pytest -m docker"))


def is_required() -> bool:
    return "docker" in os.environ.get("ENVCHECK_REQUIRE", "").split(",")


def unavailable(reason: str) -> None:
    if is_required():
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.Docker]:
    """Connect to the engine that answers, or start one for these tests."""
    pytest.importorskip("docker.errors")
    with (
        tempfile.TemporaryDirectory(prefix="envcheck-docker-", dir="/var/tmp") as folder,
        Started(Path(folder)) as host,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("DOCKER_HOST", host)
        found = docker.connect()
        try:
            yield found
        finally:
            remove_images(found)
            found.close()


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
            unavailable("no engine answers, and there is no dockerd to start as root")
        sock = self.folder / "docker.sock"
        command = ["dockerd", "--data-root", str(self.folder / "data")]
        command += ["--exec-root", str(self.folder / "exec"), "-H", f"unix://{sock}"]
        command += ["--pidfile", str(self.folder / "pid")]
        if self.always:
            # It stands beside the other engine, whose network it would take down.
            command = ["unshare", "--net", *command, "--bridge=none", "--iptables=false"]
        log = (self.folder / "log").open("wb")
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
        unavailable(f"dockerd does not start: {' '.join(said)}")
        raise AssertionError

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def remove_images(found: docker.Docker) -> None:
    """Remove what the tests made, but for the base: making it takes the longest."""
    for image in found._client.images.list():
        for tag in image.tags:
            if tag.startswith(PREFIX) and not tag.startswith(f"{PREFIX}-base"):
                found._client.images.remove(tag, force=True)
    found._client.images.prune({"dangling": True})


Make = Callable[..., str]


@pytest.fixture(scope="session")
def make_image(engine: docker.Docker) -> Make:
    """Return a function that builds an image from the text of a Dockerfile."""
    client = buildkit.find()

    def make(name: str, text: str, *arguments: str) -> str:
        tag = f"{PREFIX}-{name}:latest"
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "Dockerfile").write_text(text)
            Path(folder, "file").write_text("hello\n")
            load = ["--load"] if client.kind == "buildx" else []
            done = subprocess.run(
                [*client.command, *load, "-t", tag, *arguments, folder],
                env=dict(os.environ, DOCKER_BUILDKIT="1", BUILDKIT_PROGRESS="plain"),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-3000:]
        return tag

    return make


@pytest.fixture(scope="session")
def plain_base(engine: docker.Docker) -> str:
    """Return a Debian base with python3 and venv, without pip and without a compiler."""
    named = os.environ.get("ENVCHECK_TEST_BASE")
    if named is not None:
        return named
    tag = f"{PREFIX}-base:bookworm"
    if engine._local(tag) is not None:
        return tag
    published = next(a.image for a in targets.catalogue().architectures if a.name == "blackwell")
    try:
        return engine.inspect(f"{published.base}@{published.base_digest}").id
    except docker.FileUnavailable:
        pass
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        unavailable("no base can be pulled, and there is no debootstrap to make one as root")
    with tempfile.TemporaryDirectory(prefix="envcheck-base-", dir="/var/tmp") as folder:
        tree = f"{folder}/tree"
        packages = "--include=python3,python3-venv,ca-certificates"
        command = ["debootstrap", "--variant=minbase", packages, "bookworm", tree]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            unavailable(f"debootstrap failed: {done.stdout.decode(errors='replace')[-300:]}")
        subprocess.run(["tar", "-C", tree, "-cf", f"{folder}/tree.tar", "."], check=True)
        engine._client.api.import_image_from_file(
            f"{folder}/tree.tar", repository=f"{PREFIX}-base", tag="bookworm"
        )
    return tag


@pytest.fixture(scope="session")
def base(make_image: Make, plain_base: str) -> str:
    """Return a base with a C compiler, so that not every build installs one."""
    return make_image(
        "base-c",
        f"FROM {plain_base}\n"
        "RUN apt-get -qq update && apt-get -qq -y --no-install-recommends install"
        " gcc libc6-dev && { [ -e /usr/local/include/python3* ] ||"
        " apt-get -qq -y --no-install-recommends install libpython3-dev; }\n",
        *(["--network", "host"] if os.environ.get("ENVCHECK_TEST_NETWORK") == "host" else []),
    )


@dataclass(frozen=True)
class Index:
    """A package index on this machine, with a password, and what it serves."""

    port: int
    folder: Path
    tiny: Path

    def pip_config(self, path: Path, *, password: str = PASSWORD, port: int | None = None) -> Path:
        address = f"http://me:{password}@127.0.0.1:{port or self.port}/simple"
        path.write_text(f"[global]\nindex-url = {address}\n")
        return path

    def lock(self, path: Path, *, digest: str | None = None) -> Path:
        right = hashlib.sha256(self.tiny.read_bytes()).hexdigest()
        path.write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest or right}\n")
        return path


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("index")
    files = {"tiny.py": b"value = 1\n", "tiny_data/x.txt": b"x\n"}
    tiny = wheel(folder, "tiny", "1.0", files)
    allowed = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rstrip("/").rsplit("/", 1)[-1]
            if self.headers.get("Authorization") != allowed:
                self.answer(401, b"", **{"WWW-Authenticate": "Basic"})
            elif name == "tiny":
                link = f'<a href="/{tiny.name}">{tiny.name}</a>'.encode()
                self.answer(200, link, **{"Content-Type": "text/html"})
            elif name == tiny.name:
                self.answer(200, tiny.read_bytes())
            else:
                self.answer(404, b"")

        def answer(self, code: int, body: bytes, **headers: str) -> None:
            self.send_response(code)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Index(port=server.server_address[1], folder=folder, tiny=tiny)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def tiny(index: Index, base: str, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Return the recipe of an image that is built in seconds: one small package, no nvcc."""
    folder = tmp_path_factory.mktemp("tiny")
    authority = Path(folder, "ca.pem")
    authority.write_text(f"# {MARKER}\n")
    return Recipe(
        target="test",
        sm="sm_120",
        torch_cuda_arch_list="12.0",
        torch="none",
        cuda="13.0",
        nvidia_require_cuda="cuda>=13.0",
        base=base,
        base_digest=None,
        lock=index.lock(folder / "lock.txt"),
        builder_lock=None,
        pip_config=index.pip_config(folder / "pip.conf"),
        ca_file=authority,
        network="host",
        epoch=recipe.EPOCH,
    )
