"""A real engine, a base image, and an index with a password: started here where none is.

`pytest -m docker` runs these tests; `--require docker` also makes a failure of every skip,
such as that without an engine. ENVCHECK_TEST_BASE names a Debian base with python3 and its
venv module; without it one is pulled, or made by debootstrap. What the tests make is removed
after them, and everything of an engine that was started for them.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from building import SM120_LIBRARY, wheel
from parts import required
from real_engine import Images, Started, Unavailable

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
    asked = "docker" in (config.option.markexpr or "") or "docker" in required(config)
    for item in items:
        if _HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.docker)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))
            if not asked:
                reason = "builds images: -m docker runs these alone, --require docker all"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport]:
    """Turn a skip into a failure where these tests are required."""
    report = yield
    if report.skipped and "docker" in required(item.config):
        report.outcome = "failed"
        _, _, reason = report.longrepr
        report.longrepr = f"--require docker: {reason}"
    return report


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.Docker]:
    """Connect to the engine that answers, or start one for these tests."""
    pytest.importorskip("docker.errors")
    with (
        tempfile.TemporaryDirectory(
            prefix="envcheck-docker-", dir=os.environ.get("TMPDIR", "/var/tmp")
        ) as folder,
        pytest.MonkeyPatch.context() as patch,
        started(Path(folder)) as host,
    ):
        patch.setenv("DOCKER_HOST", host)
        found = docker.connect()
        try:
            yield found
        finally:
            found.close()


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """Give the address of an engine; skips where none can be had."""
    with ExitStack() as stack:
        try:
            host = stack.enter_context(Started(folder))
        except Unavailable as error:
            pytest.skip(str(error))
        yield host


@pytest.fixture(scope="session")
def images(engine: docker.Docker) -> Iterator[Images]:
    """Give the label that everything built here has, and remove it all in the end."""
    found = Images(engine)
    yield found
    found.restore()


Make = Callable[..., str]


@pytest.fixture(scope="session")
def make_image(engine: docker.Docker, images: Images) -> Make:
    """Return a function that builds an image from the text of a Dockerfile."""
    client = buildkit.find()

    def make(name: str, text: str, *arguments: str) -> str:
        tag = f"{PREFIX}-{name}:{images.session}"
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "Dockerfile").write_text(text)
            Path(folder, "file").write_text("hello\n")
            load = ["--load"] if client.kind == "buildx" else []
            done = subprocess.run(
                [*client.command, *load, "-t", tag, "--label", images.label, *arguments, folder],
                env=dict(os.environ, DOCKER_BUILDKIT="1", BUILDKIT_PROGRESS="plain"),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-3000:]
        return tag

    return make


@pytest.fixture(scope="session")
def found_base(engine: docker.Docker, images: Images) -> str:
    """Return the name of a Debian base with python3 and venv, without a compiler."""
    named = os.environ.get("ENVCHECK_TEST_BASE")
    if named is not None:
        return named
    tag = f"{PREFIX}-base:bookworm"
    if engine._local(tag) is not None:
        return tag
    published = next(a.image for a in targets.catalogue().architectures if a.name == "blackwell")
    reference = f"{published.base}@{published.base_digest}"
    if engine._local(reference) is not None:
        return reference
    try:
        engine.inspect(reference)
    except docker.FileUnavailable:
        pass
    else:
        images.pulled.append(reference)
        return reference
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("no base can be pulled, and there is no debootstrap to make one as root")
    with tempfile.TemporaryDirectory(prefix="envcheck-base-", dir="/var/tmp") as folder:
        tree = f"{folder}/tree"
        packages = "--include=python3,python3-venv,ca-certificates"
        command = ["debootstrap", "--variant=minbase", packages, "bookworm", tree]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            pytest.skip(f"debootstrap failed: {done.stdout.decode(errors='replace')[-300:]}")
        subprocess.run(["tar", "-C", tree, "-cf", f"{folder}/tree.tar", "."], check=True)
        engine._client.api.import_image_from_file(
            f"{folder}/tree.tar",
            repository=f"{PREFIX}-base",
            tag="bookworm",
            changes=[f"LABEL {images.label}"],
        )
    return tag


@pytest.fixture(scope="session")
def plain_base(make_image: Make, found_base: str) -> str:
    """Return that base with our label, which all that is built on it inherits."""
    return make_image("base-plain", f"FROM {found_base}\n")


@pytest.fixture(scope="session")
def base(make_image: Make, plain_base: str) -> str:
    """Return a base with compilers, so that not every build installs them."""
    return make_image(
        "base-c",
        f"FROM {plain_base}\n"
        "RUN apt-get -qq update && apt-get -qq -y --no-install-recommends install"
        " gcc g++ libc6-dev && { [ -e /usr/local/include/python3* ] ||"
        " apt-get -qq -y --no-install-recommends install libpython3-dev; }\n",
        *(["--network", "host"] if os.environ.get("ENVCHECK_TEST_NETWORK") == "host" else []),
    )


OLD_PYTHON = """\
FROM {base}
RUN rm -f /usr/bin/python3 /usr/local/bin/python*
RUN printf '%s\\n' '#!/usr/bin/python3.11' 'import sys' 'sys.version_info = (3, 8, 20)' \\
    'if sys.argv[1] == "--version": sys.exit(print("Python 3.8.20"))' \\
    'if sys.argv[1] == "-c": exec(sys.argv[2]); sys.exit()' \\
    'sys.argv = [a for a in sys.argv[1:] if a[0] != "-"]' \\
    'exec(open(sys.argv[0]).read())' > /usr/local/bin/python3 \\
    && chmod 755 /usr/local/bin/python3
"""


@pytest.fixture(scope="session")
def old_python(plain_base: str, make_image: Make) -> str:
    """Return an image whose only Python calls itself 3.8: no such package is in Debian 12."""
    return make_image("old", OLD_PYTHON.format(base=plain_base))


@dataclass(frozen=True)
class Index:
    """A package index on this machine, with a password, and what it serves."""

    port: int
    folder: Path

    def pip_config(self, path: Path, *, password: str = PASSWORD, port: int | None = None) -> Path:
        address = f"http://me:{password}@127.0.0.1:{port or self.port}/simple"
        path.write_text(f"[global]\nindex-url = {address}\n")
        return path

    def lock(self, path: Path, *names: str, digest: str | None = None) -> Path:
        """Write a lock of these packages, of `tiny` without any."""
        lines = []
        for name in names or ("tiny",):
            (file,) = served(self.folder, name)
            right = hashlib.sha256(file.read_bytes()).hexdigest()
            version = file.name.split("-")[1]
            lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest or right}\n")
        path.write_text("".join(lines))
        return path


def served(folder: Path, name: str) -> list[Path]:
    """Return the files of a package."""
    return sorted(folder.glob(f"{name.replace('-', '_')}-*.whl"))


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("index")
    wheel(folder, "tiny", "1.0", {"tiny.py": b"value = 1\n", "tiny_data/x.txt": b"x\n"})
    # What a lock must pin, with machine code of a real nvcc for sm_120 and nothing else.
    version = b'__version__ = "2.99.0"\ncuda = "13.0"\n'
    code = SM120_LIBRARY.read_bytes()
    files = {
        "torch/__init__.py": b"from torch.version import __version__\n",
        "torch/version.py": version,
        "torch/lib/libtorch_cuda.so": code,
    }
    wheel(folder, "torch", "2.99.0", files)
    wheel(folder, "nvidia-cuda-runtime", "13.0.96", {"nvidia/cu13/lib/note.txt": b"x\n"})
    allowed = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rstrip("/").rsplit("/", 1)[-1]
            if self.headers.get("Authorization") != allowed:
                self.answer(401, b"", **{"WWW-Authenticate": "Basic"})
            elif name.endswith(".whl") and (folder / name).exists():
                self.answer(200, (folder / name).read_bytes())
            elif files := served(folder, name):
                links = "".join(f'<a href="/{file.name}">{file.name}</a>' for file in files)
                self.answer(200, links.encode(), **{"Content-Type": "text/html"})
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
    yield Index(port=server.server_address[1], folder=folder)
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
