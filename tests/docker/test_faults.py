"""What goes wrong with engines, bases, indexes and images, provoked for real."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from real_engine import Started, guests

from envcheck.core import codec
from envcheck.core.request import Collected, Request
from envcheck.engine import container, docker
from envcheck.engine.docker import Docker
from envcheck.engine.protocol import Limits
from envcheck.engine.recipe import Recipe
from envcheck.errors import EnvcheckError, FileUnavailable

REQUEST = Request()
Make = Callable[..., str]


def build(engine: Docker, recipe: Recipe, tmp_path: Path) -> FileUnavailable:
    """Build what cannot be built; returns the error, which must be one with a remedy."""
    with pytest.raises(FileUnavailable) as caught:
        engine.build(recipe, log=tmp_path / "log", progress=lambda _: None)
    assert caught.value.exit_code == 3
    assert caught.value.remedy
    assert "\n" not in caught.value.message
    return caught.value


def run(engine: Docker, image: str, **limits: float) -> Collected:
    answer = engine.run_guest(image, REQUEST, limits=Limits(**limits))
    return codec.loads(Collected, answer.document, name="answer")


@pytest.fixture(autouse=True)
def no_container_is_left(
    engine: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    # What a guest sees lies there, which tells ours from others'.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert guests(engine, tmp_path) == []


# --- images that are only looked at


def test_an_image_without_pip_is_read_with_its_own_python(engine: Docker, plain_base: str) -> None:
    found = run(engine, plain_base)
    assert found.environment.python.startswith("3.")
    assert found.environment.torch is None


def test_an_image_without_a_shell_is_read(
    engine: Docker, plain_base: str, make_image: Make
) -> None:
    image = make_image("no-shell", f"FROM {plain_base}\nRUN rm -f /bin/bash /bin/dash /bin/sh\n")
    assert run(engine, image).environment.implementation == "cpython"


def test_an_image_with_a_user_and_a_health_check_of_its_own(
    engine: Docker, plain_base: str, make_image: Make
) -> None:
    image = make_image(
        "user",
        f"FROM {plain_base}\nUSER 4711:4711\nVOLUME /data\nENTRYPOINT ['/no/such']\n"
        "HEALTHCHECK --interval=1s CMD /no/such\n",
    )
    assert run(engine, image).environment.implementation == "cpython"
    assert engine._client.volumes.list(filters={"dangling": True}) == []


def test_an_image_without_python(engine: Docker, make_image: Make) -> None:
    image = make_image("empty", "FROM scratch\nCOPY file /file\n")
    with pytest.raises(FileUnavailable, match="no Python in the image") as caught:
        run(engine, image)
    assert "--python" in caught.value.remedy


def test_an_interpreter_that_is_not_in_the_image(engine: Docker, plain_base: str) -> None:
    with pytest.raises(FileUnavailable, match="no interpreter /opt/none/python"):
        engine.run_guest(plain_base, REQUEST, limits=Limits(), python="/opt/none/python")


def test_an_image_with_python_3_8(engine: Docker, old_python: str) -> None:
    with pytest.raises(FileUnavailable, match=r"Python 3\.8\.20 is too old"):
        run(engine, old_python)


def test_an_image_of_another_architecture(engine: Docker, make_image: Make) -> None:
    other = "arm64" if engine._architecture == "amd64" else "amd64"
    text = "FROM scratch\nCOPY file /usr/bin/python3\n"
    image = make_image("other", text, "--platform", f"linux/{other}")
    with pytest.raises(FileUnavailable, match=f"an image for {other}, not") as caught:
        run(engine, image)
    assert f"--platform linux/{engine._architecture}" in caught.value.remedy


def test_an_image_that_lies_about_its_architecture(
    engine: Docker, plain_base: str, make_image: Make
) -> None:
    # An ELF header for a machine that this one is not (SPARC V9).
    header = r"\177ELF\002\002\001\000\000\000\000\000\000\000\000\000\000\002\000\053"
    places = "/usr/bin/python3 /usr/local/bin/python3"
    image = make_image(
        "lies",
        f"FROM {plain_base}\nRUN rm -f {places} && printf '{header}' > /usr/bin/python3"
        " && head -c 4096 /dev/zero >> /usr/bin/python3 && chmod 755 /usr/bin/python3\n",
    )
    with pytest.raises(FileUnavailable, match="another CPU architecture"):
        run(engine, image)


def test_an_image_that_answers_with_a_link_to_the_host(
    engine: Docker, plain_base: str, make_image: Make
) -> None:
    image = make_image(
        "hostile",
        f"FROM {plain_base}\nRUN rm -f /usr/bin/python3 /usr/local/bin/python3 && printf '%s\\n'"
        " '#!/bin/sh' 'ln -s /etc/passwd /envcheck/control/inventory.json'"
        " > /usr/bin/python3 && chmod 755 /usr/bin/python3\n",
    )
    with pytest.raises(EnvcheckError, match="wrote no inventory"):
        run(engine, image)


PROBE = """\
FROM {base}
RUN rm -f /usr/bin/python3 /usr/local/bin/python3 && printf '%s\\n' '#!/bin/sh' {lines} \\
    > /usr/bin/python3 && chmod 755 /usr/bin/python3
"""


def test_a_guest_may_write_nowhere_and_reach_nobody(
    engine: Docker, plain_base: str, make_image: Make
) -> None:
    lines = (
        "touch /usr/x /envcheck/bundle/x 2>/dev/null && echo WROTE",
        "touch /tmp/x || echo NO-SCRATCH",
        "grep -E '^(CapEff|NoNewPrivs)' /proc/self/status",
        "ls /sys/class/net; kill -9 1; exit 5",
    )
    quoted = " ".join('"' + line.replace('"', '\\"') + '"' for line in lines)
    image = make_image("probe", PROBE.format(base=plain_base, lines=quoted))
    with pytest.raises(EnvcheckError) as caught:
        run(engine, image)
    with docker_container(engine, image) as said:
        assert "WROTE" not in said
        assert "NO-SCRATCH" not in said
        assert "CapEff:\t0000000000000000" in said
        assert "NoNewPrivs:\t1" in said
        assert said.splitlines()[-1] == "lo"
    assert "code 5" in caught.value.message


@contextmanager
def docker_container(engine: Docker, image: str) -> Iterator[str]:
    """Run the guest's container once more and hand over all that it said."""
    with tempfile.TemporaryDirectory() as folder:
        mounts = {"bundle": (Path(folder), "ro")}
        options = container.options(engine.inspect(image), Limits(), mounts)
        made = engine._client.containers.create(**options, entrypoint=["python3"])
        try:
            made.start()
            made.wait(timeout=60)
            yield made.logs().decode().strip()
        finally:
            made.remove(force=True, v=True)


def test_a_guest_that_takes_too_long_is_ended(
    engine: Docker, plain_base: str, make_image: Make
) -> None:
    image = make_image("slow", PROBE.format(base=plain_base, lines='"exec sleep 1000"'))
    start = time.monotonic()
    with pytest.raises(EnvcheckError, match="took more than 2 s and was ended"):
        run(engine, image, seconds=2)
    assert time.monotonic() - start < 60


def test_a_guest_that_takes_too_much_memory_is_ended(
    engine: Docker, plain_base: str, make_image: Make
) -> None:
    hungry = '"exec python3.11 -c \\"x = bytearray(1 << 30)\\""'
    if "python3.11" not in str(engine.content(plain_base).entries.keys()):
        pytest.skip("written for the base with Debian's own Python")
    image = make_image("hungry", PROBE.format(base=plain_base, lines=hungry))
    with pytest.raises(EnvcheckError, match="more than 64 MiB of memory"):
        run(engine, image, memory=64 << 20, scratch=1 << 20)


def test_an_image_that_is_nowhere(engine: Docker) -> None:
    with pytest.raises(FileUnavailable, match="is not here and cannot be pulled"):
        engine.inspect("localhost:9/envcheck-no-such-image:1")
    with pytest.raises(FileUnavailable, match="an id cannot be pulled"):
        engine.inspect("sha256:" + "0" * 64)


def test_a_file_that_is_not_in_the_image(engine: Docker, plain_base: str) -> None:
    with pytest.raises(FileUnavailable, match="has no /no/such"):
        engine.read_file(plain_base, "/no/such")
    with pytest.raises(EnvcheckError, match="/etc is not a regular file"):
        engine.read_file(plain_base, "/etc")
    with pytest.raises(EnvcheckError, match="more than 3"):
        engine.read_file(plain_base, "/etc/passwd", limit=3)


INTERRUPTED = """
import sys
from envcheck.core.request import Request
from envcheck.engine import docker
from envcheck.engine.protocol import Limits
engine = docker.connect()
try:
    engine.run_guest(sys.argv[1], Request(), limits=Limits())
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0])
def test_ctrl_c_leaves_no_container(
    engine: Docker, plain_base: str, make_image: Make, tmp_path: Path, delay: float
) -> None:
    image = make_image("slow", PROBE.format(base=plain_base, lines='"exec sleep 1000"'))
    variables = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, image], env=variables) as child:
        try:
            deadline = time.monotonic() + 60
            while not guests(engine, tmp_path):
                assert time.monotonic() < deadline
            time.sleep(delay)
            child.send_signal(signal.SIGINT)
            assert child.wait(60) == 130
        finally:
            child.kill()
    # And no_container_is_left looks.


# --- builds


def test_a_base_that_is_nowhere(engine: Docker, tiny: Recipe, tmp_path: Path) -> None:
    error = build(engine, replace(tiny, base="localhost:9/no-such-base:1"), tmp_path)
    assert "base image" in error.message
    assert "localhost:9/no-such-base:1" in error.message
    assert "cannot be had" in error.message


def test_a_base_with_another_digest_than_the_pinned(
    engine: Docker, tiny: Recipe, tmp_path: Path
) -> None:
    pinned = "sha256:" + "5" * 64
    error = build(engine, replace(tiny, base_digest=pinned), tmp_path)
    here = engine.inspect(tiny.base).id
    assert f"the one here is {here}, not {pinned}" in error.message


def test_a_local_base_may_be_pinned_by_its_id(engine: Docker, tiny: Recipe, tmp_path: Path) -> None:
    pinned = replace(tiny, base_digest=engine.inspect(tiny.base).id)
    engine.build(pinned, log=tmp_path / "log", progress=lambda _: None)


def test_a_wheel_with_other_bytes_than_the_lock_pins(
    engine: Docker, tiny: Recipe, index, tmp_path: Path
) -> None:
    lock = index.lock(tmp_path / "lock.txt", digest="0" * 64)
    error = build(engine, replace(tiny, lock=lock), tmp_path)
    assert error.message.startswith("tiny==1.0: the index serves other bytes than the lock pins")


def test_a_lock_without_hashes(engine: Docker, tiny: Recipe, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("tiny==1.0\n")
    assert "does not pin everything" in build(engine, replace(tiny, lock=lock), tmp_path).message


def test_a_package_that_the_index_has_not(engine: Docker, tiny: Recipe, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(tiny.lock.read_text().replace("tiny==1.0", "absent==1.0"))
    error = build(engine, replace(tiny, lock=lock), tmp_path)
    assert error.message.startswith("absent==1.0: the index has no wheel")


def test_an_index_that_cannot_be_reached(
    engine: Docker, tiny: Recipe, index, tmp_path: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    config = index.pip_config(tmp_path / "pip.conf", port=port)
    lock = tmp_path / "lock.txt"
    lock.write_text(tiny.lock.read_text() + "# not in the cache\n")
    error = build(engine, replace(tiny, lock=lock, pip_config=config), tmp_path)
    assert "index cannot be reached" in error.message


def test_an_index_that_refuses_the_password(
    engine: Docker, tiny: Recipe, index, tmp_path: Path
) -> None:
    config = index.pip_config(tmp_path / "pip.conf", password="a-wrong-one")
    lock = tmp_path / "lock.txt"
    lock.write_text(tiny.lock.read_text() + "# nor this\n")
    error = build(engine, replace(tiny, lock=lock, pip_config=config), tmp_path)
    assert "refuses the credentials" in error.message
    assert "a-wrong-one" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM scratch\nCOPY file /file\n", "no shell"),
        ("FROM {base}\nRUN rm -f /bin/bash /bin/dash /bin/sh\n", "no shell"),
        ("FROM {base}\nRUN rm -f /usr/bin/python3 /usr/local/bin/python3\n", "no Python"),
        ("FROM {base}\nRUN rm -f /usr/bin/apt-get\n", "lacks a compiler"),
    ],
)
def test_a_base_that_will_not_do(
    engine: Docker,
    tiny: Recipe,
    plain_base: str,
    make_image: Make,
    tmp_path: Path,
    text: str,
    message: str,
) -> None:
    image = make_image("will-not-do", text.format(base=plain_base))
    assert message in build(engine, replace(tiny, base=image), tmp_path).message


def test_a_base_with_an_old_python(
    engine: Docker, tiny: Recipe, old_python: str, tmp_path: Path
) -> None:
    error = build(engine, replace(tiny, base=old_python), tmp_path)
    assert "the base image has Python 3.8.20, which is too old" in error.message


def test_a_full_disk(
    engine: Docker, tiny: Recipe, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second engine on a small file system; the build fills what the base left free."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("needs root and dockerd")
    # Loading an image takes its size twice for a while; then as much again, sent and copied,
    # finds no room.
    taken = engine.inspect(base).size
    size = taken * 5 // 2
    filler = tmp_path / "filler"
    filler.mkdir()
    with (filler / "setup.py").open("wb") as handle:
        handle.truncate(taken)
    with tempfile.TemporaryDirectory(prefix="envcheck-full-", dir="/var/tmp") as folder:
        place = Path(folder)
        mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        if subprocess.run(mounted, check=False).returncode:
            pytest.skip("needs the right to mount")
        try:
            with Started(place, always=True) as host:
                monkeypatch.setenv("DOCKER_HOST", host)
                small = docker.connect()
                try:
                    small._client.images.load(engine._client.images.get(base).save(named=True))
                    error = build(small, replace(tiny, extensions={"filler": filler}), tmp_path)
                finally:
                    small.close()
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
    assert "the disk is full" in error.message
    assert "prune" in error.remedy
