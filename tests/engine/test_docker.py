"""The Docker engine without an engine: clients, logs, containers and errors, by their words."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from envcheck import targets
from envcheck.engine import build_log, buildkit, container, recipe, stream
from envcheck.engine.build_log import BuildLog
from envcheck.engine.protocol import ImageFacts, Limits
from envcheck.engine.recipe import Recipe
from envcheck.errors import EnvcheckError, FileUnavailable, UsageError

IMAGE = ImageFacts(
    id="sha256:" + "1" * 64,
    digests=(),
    architecture="amd64",
    os="linux",
    size=1,
    user="",
    variables={},
    labels={},
    layers=(),
)


def blackwell() -> Recipe:
    rows = {a.name: a for a in targets.catalogue().architectures}
    return recipe.of_architecture(rows["blackwell"])


# --- which client builds


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Make `docker` commands out of shell scripts, alone on PATH, in the order they are made."""
    folders: list[str] = []

    def add(script: str, name: str = "docker") -> Path:
        folder = tmp_path / f"bin{len(folders)}"
        folder.mkdir()
        command = folder / name
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        folders.append(str(folder))
        monkeypatch.setenv("PATH", os.pathsep.join(folders))
        return command

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(buildkit, "USUAL_PLACES", ())
    return add


NO_BUILDX = '[ "$1" = version ] && echo 28.2.2 || { echo "unknown command" >&2; exit 1; }'
OLD = '[ "$1" = version ] && echo 20.10.24+dfsg1 || exit 1'
ANCIENT = '[ "$1" = version ] && echo 17.03.2-ce || exit 1'


def with_buildx(buildkit_version: str) -> str:
    return f'[ "$1 $2" = "buildx inspect" ] && echo "BuildKit version: {buildkit_version}"; exit 0'


def test_buildx_is_taken_where_it_works(commands) -> None:
    commands(NO_BUILDX)
    second = commands(with_buildx("v0.12.5"))
    found = buildkit.find()
    assert (found.kind, found.command) == ("buildx", (str(second), "buildx", "build"))
    assert not found.rewrites_times


def test_times_are_rewritten_from_buildkit_0_13_on(commands) -> None:
    commands(with_buildx("v0.13.0"))
    assert buildkit.find().rewrites_times


def test_a_client_with_buildkit_inside_is_taken_where_no_buildx_is(commands) -> None:
    commands(NO_BUILDX)
    second = commands(OLD)
    found = buildkit.find()
    assert (found.kind, found.command) == ("buildkit", (str(second), "build"))


def test_a_builder_by_name_needs_buildx(commands) -> None:
    commands(OLD)
    with pytest.raises(FileUnavailable, match="can use the builder far") as caught:
        buildkit.find(builder="far")
    assert "install docker-buildx" in caught.value.remedy


@pytest.mark.parametrize("script", [NO_BUILDX, ANCIENT])
def test_a_client_that_cannot_is_named(commands, script: str) -> None:
    command = commands(script)
    with pytest.raises(FileUnavailable, match=f"can use BuildKit: {command} ") as caught:
        buildkit.find()
    assert caught.value.exit_code == 3


def test_no_client_at_all(commands) -> None:
    with pytest.raises(FileUnavailable, match="no docker command"):
        buildkit.find()


def test_podman_engines_are_built_on_by_podman(commands) -> None:
    with pytest.raises(FileUnavailable, match="which has no BuildKit"):
        buildkit.find(podman="unix:///run/podman.sock")
    command = commands("exit 0", name="podman")
    found = buildkit.find(podman="unix:///run/podman.sock")
    assert found.command == (str(command), "--url", "unix:///run/podman.sock", "build")


# --- what the client is told, and that it ends

BUILD = """
for last; do :; done
while [ $# -gt 1 ]; do [ "$1" = --iidfile ] && iid=$2; echo "$1"; shift; done
ls "$last" "$last/steps"
printf sha256:%064d 7 > "$iid"
"""


def build(command: Path, given: Recipe, log: Path, kind: str = "buildkit", **fields: object):
    client = buildkit.Client(kind=kind, command=(str(command), "build"), **fields)
    return buildkit.build(
        client, given, base="base:1", stage="final", log=log, progress=lambda _: None
    )


def test_what_a_build_is_told(commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    command = tmp_path / "docker"
    command.write_text(f"#!/bin/sh{BUILD}")
    command.chmod(0o755)
    secret = tmp_path / "pip.conf"
    secret.write_text("[global]\n")
    given = replace(blackwell(), pip_config=secret, network="host", no_cache=True)
    built = build(command, given, tmp_path / "log")
    assert built.reference == "sha256:" + "7".zfill(64)
    said = (tmp_path / "log").read_text().splitlines()
    told = dict(itertools.pairwise(said))
    assert told["--target"] == "final"
    assert told["--tag"] == "envcheck-blackwell:latest"
    assert told["--secret"] == f"id=pip-config,src={secret}"
    assert told["--network"] == "host"
    assert {"--no-cache", "BASE=base:1", "SM=sm_120", "TORCH_CUDA_ARCH_LIST=12.0"} <= set(said)
    # The context holds what the Dockerfile reads, and nothing else of the machine.
    assert said[said.index("Dockerfile") :][:4] == [
        "Dockerfile",
        "builder.txt",
        "lock.txt",
        "steps",
    ]


@pytest.mark.parametrize(
    ("fields", "present", "absent"),
    [
        ({"kind": "buildx"}, ["--load", "--provenance=false"], ["--output", "--builder"]),
        ({"kind": "buildx", "builder": "far"}, ["--builder", "far"], []),
        (
            {"kind": "buildx", "rewrites_times": True},
            ["type=docker,name=envcheck-blackwell:latest,rewrite-timestamp=true"],
            ["--load"],
        ),
        ({"kind": "podman"}, ["--timestamp", "1767225600"], ["--progress", "--load"]),
    ],
)
def test_each_client_is_told_in_its_own_words(
    fields: dict, present: list[str], absent: list[str]
) -> None:
    client = buildkit.Client(command=("docker", "build"), **fields)
    told = buildkit.command(client, blackwell(), base="b", stage="final", image_id=Path("/tmp/iid"))
    assert set(present) <= set(told)
    assert not set(absent) & set(told)


def test_a_secret_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = replace(blackwell(), ca_file=tmp_path / "missing.pem")
    with pytest.raises(FileUnavailable, match=r"missing\.pem: cannot be read"):
        build(Path("/bin/true"), given, tmp_path / "log")


def test_the_log_holds_no_credentials(tmp_path: Path) -> None:
    command = tmp_path / "docker"
    command.write_text(
        "#!/bin/sh\n"
        "echo '#5 [environment 3/3] RUN x'\n"
        "echo '#5 1.0 Looking in indexes: https://me:hunter2@mirror.invalid/simple'\n"
        "echo '#5 ERROR: exit code: 1'; exit 1\n"
    )
    command.chmod(0o755)
    with pytest.raises(EnvcheckError) as caught:
        build(command, blackwell(), tmp_path / "log")
    text = (tmp_path / "log").read_text() + caught.value.message + caught.value.remedy
    assert "hunter2" not in text
    assert "https://***@mirror.invalid/simple" in text


INTERRUPTED = """
import os, signal, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from envcheck.engine import child
def read(line):
    Path(sys.argv[2]).write_text(line)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    child.stream(["sh", "-c", "echo $$; trap 'exit 7' INT; sleep 100 & wait"], {}, read)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_leaves_no_child(tmp_path: Path) -> None:
    root = str(Path(buildkit.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, root, str(tmp_path / "pid")], timeout=60, check=False
    )
    assert done.returncode == 130
    group = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    pytest.fail("the build's children are still there")


# --- what a log says

LOG_20_10 = """\
#1 [internal] load build definition from Dockerfile
#1 sha256:9f1ca15e1b0a67ac34cb3cd0b9b4bb56d9c9b5d0ad1d5b4c3e6c2d1a0f9e8d7c
#1 DONE 0.0s
#6 [environment 2/3] RUN sh /run/build/packages.sh c
#6 CACHED
#8 [environment 3/3] RUN python3 -B /run/build/environment.py
#8 0.512 Collecting idna==3.20
#8 DONE 17.2s
"""


def test_steps_are_followed_from_line_to_line() -> None:
    seen = BuildLog()
    steps = [seen.feed(line) for line in LOG_20_10.splitlines()]
    assert [s.state for s in steps if s] == [
        *["running"] * 2,
        "done",
        "running",
        "cached",
        *["running"] * 2,
        "done",
    ]
    assert steps[6].line == "Collecting idna==3.20"
    assert [(s.id, s.state, s.seconds) for s in seen.steps] == [
        ("1", "done", 0.0),
        ("6", "cached", None),
        ("8", "done", 17.2),
    ]
    assert dict(build_log.phases(seen.steps)) == {"engine": 0.0, "environment": 17.2}


HASHES = """\
#8 2.1 ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have ...
#8 2.1     six==1.17.0 from https://mirror.invalid/six-1.17.0-py2.py3-none-any.whl (from -r /run/build/lock/lock.txt (line 2)):
#8 2.1         Expected sha256 4721
#8 2.1              Got        ff70
#8 ERROR: executor failed running [/bin/sh -c python3]: exit code: 1
"""


NO_HASHES = """\
#8 1.2 ERROR: Hashes are required in --require-hashes mode, but they are missing from some
"""
UNREACHABLE = """\
#8 9.0 WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('...
#8 9.1 ERROR: No matching distribution found for six==1.17.0
"""
UNTRUSTED = """\
#8 9.0 WARNING: Retrying after SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAIL
#8 9.1 ERROR: No matching distribution found for six==1.17.0
"""
REFUSED = """\
#8 1.0 WARNING: 401 Error, Credentials not correct for https://mirror.invalid/simple/six/
#8 1.1 ERROR: No matching distribution found for six==1.17.0
"""
NO_WHEEL = """\
#8 1.1 ERROR: Could not find a version that satisfies the requirement torch==2.14.1 (from ...
#8 1.1 ERROR: No matching distribution found for torch==2.14.1
"""
DISK_FULL = """\
#8 3.0 ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device
"""
NO_PYTHON = """\
#6 0.3 envcheck: base-without-python: no python3 on PATH
"""
OLD_PYTHON = """\
#6 0.3 envcheck: base-with-old-python: Python 3.8.20
"""
NO_SHELL = """\
#6 ERROR: failed to create shim: exec: "/bin/sh": stat /bin/sh: no such file or directory
"""


@pytest.mark.parametrize(
    ("log", "message", "remedy"),
    [
        (HASHES, "six==1.17.0: the index serves other bytes than the lock pins", "new lock"),
        (NO_HASHES, "the lock does not pin everything", "--generate-hashes"),
        (UNREACHABLE, "the package index cannot be reached", "--pip-config"),
        (UNTRUSTED, "a certificate that is not trusted", "--ca-file"),
        (REFUSED, "refuses the credentials", "--pip-config"),
        (NO_WHEEL, "torch==2.14.1: the index has no wheel for the base's Python", "--base"),
        (DISK_FULL, "the disk is full", "docker builder prune"),
        (NO_PYTHON, "the base image has no Python: no python3 on PATH", "python >= 3.10"),
        (OLD_PYTHON, "the base image has Python 3.8.20, which is too old", "--base"),
        (NO_SHELL, "the base image has no shell", "--base"),
        ("#6 0.2 exec /bin/sh: exec format error", "another CPU architecture", "--base"),
    ],
)
def test_a_failure_names_cause_and_remedy(log: str, message: str, remedy: str) -> None:
    seen = BuildLog()
    for line in log.splitlines():
        seen.feed(build_log.clean(line))
    error = seen.failure("build.log")
    assert isinstance(error, FileUnavailable)
    assert message in error.message
    assert error.message.endswith("(log: build.log)")
    assert remedy in error.remedy.replace("python3", "python")


def test_a_failure_that_nobody_foresaw_shows_its_last_line() -> None:
    seen = BuildLog()
    seen.feed("#8 1.0 something odd")
    error = seen.failure("build.log")
    assert type(error) is EnvcheckError
    assert error.message == "the build failed: something odd (log: build.log)"


def test_a_log_shows_no_control_characters() -> None:
    assert build_log.clean("a\x1b[31mb\x07c\td") == "abc\td"


# --- the context


def test_an_architecture_without_an_image_says_which_have_one() -> None:
    turing = next(a for a in targets.catalogue().architectures if a.name == "turing")
    with pytest.raises(UsageError) as caught:
        recipe.of_architecture(turing)
    assert caught.value.remedy == "--arch blackwell (there are ada, hopper, blackwell)"


def test_extensions_are_copied_without_what_was_built_from_them(tmp_path: Path) -> None:
    source = tmp_path / "mine"
    (source / "__pycache__").mkdir(parents=True)
    (source / "build").mkdir()
    (source / "setup.py").write_text("")
    context = tmp_path / "context"
    context.mkdir()
    recipe.stage_context(replace(blackwell(), extensions={"mine_ops": source}), context)
    assert [p.name for p in (context / "extensions" / "mine_ops").iterdir()] == ["setup.py"]


@pytest.mark.parametrize(
    ("name", "source", "kind"),
    [
        ("mine", "missing", FileUnavailable),
        ("mine", "file", FileUnavailable),
        ("../up", "mine", UsageError),
        ("", "mine", UsageError),
        ("a-b", "mine", UsageError),
    ],
)
def test_an_extension_that_cannot_be_taken_is_named(
    tmp_path: Path, name: str, source: str, kind: type[EnvcheckError]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").write_text("")
    context = tmp_path / "context"
    context.mkdir()
    given = replace(blackwell(), extensions={name: tmp_path / source})
    with pytest.raises(kind, match=f"extension '?{re.escape(name)}") as caught:
        recipe.stage_context(given, context)
    assert caught.value.remedy


def test_no_builder_lock_is_an_empty_one(tmp_path: Path) -> None:
    recipe.stage_context(replace(blackwell(), builder_lock=None), tmp_path)
    assert (tmp_path / "builder.txt").read_bytes() == b""


# --- the guest's container


def test_a_container_may_read_compute_and_answer() -> None:
    mounts = {"bundle": (Path("/b"), "ro"), "control": (Path("/c"), "rw")}
    options = container.options(IMAGE, Limits(memory=1 << 30, scratch=1 << 20), mounts)
    assert options["network_mode"] == "none"
    assert options["cap_drop"] == ["ALL"]
    assert options["read_only"] is True
    assert options["security_opt"] == ["no-new-privileges"]
    assert (options["mem_limit"], options["memswap_limit"]) == (1 << 30, 1 << 30)
    assert options["pids_limit"] == 512
    assert options["tmpfs"] == {"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=1048576"}
    assert options["volumes"] == {
        "/b": {"bind": "/envcheck/bundle", "mode": "ro"},
        "/c": {"bind": "/envcheck/control", "mode": "rw"},
    }


def test_an_answer_is_never_read_through_a_link_or_from_a_pipe(tmp_path: Path) -> None:
    """A hostile image could plant a link to a file of this host."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"{}")
    names = ("link", "pipe", "folder", "missing", "file")
    assert [container.read(tmp_path / name) for name in names] == [None, None, None, None, b"{}"]


def test_an_answer_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "LARGEST_ANSWER", 3)
    (tmp_path / "file").write_bytes(b"1234")
    with pytest.raises(EnvcheckError, match="answer has more than"):
        container.read(tmp_path / "file")


def test_the_launcher_starts_the_guest_in_its_own_process(tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(container.LAUNCHER)
    (tmp_path / "guest.py").write_text("import os, sys; print(os.getpid(), sys.argv[1:])")
    child = subprocess.Popen(
        [sys.executable, "-B", "launch.py", "guest.py", str(tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    )
    said, _ = child.communicate(timeout=60)
    assert said.decode().strip() == f"{child.pid} {[str(tmp_path)]}"
    version = json.loads((tmp_path / "python.json").read_text())["version"]
    assert tuple(version) == sys.version_info[:3]


class Refusing:
    """A client whose engine has no such interpreter, or fails at it."""

    def __init__(self, said: str) -> None:
        self.containers = self
        self.api = self
        self.said = said
        self.removed: list[str] = []

    def create(self, **options: object):
        self.tried = options["entrypoint"]
        return self

    def start(self) -> None:
        from docker.errors import APIError

        raise APIError(self.said, explanation=self.said.format(python=self.tried[0]))

    def remove_container(self, name: str, **_: object) -> None:
        self.removed.append(name)


def run(client: object) -> None:
    container.run_guest(client, IMAGE, {}, limits=Limits(), python=None, folders={})


def test_an_image_without_python_is_said_to_be_one() -> None:
    pytest.importorskip("docker.errors")
    client = Refusing('exec: "{python}": executable file not found in $PATH: unknown')
    with pytest.raises(FileUnavailable, match="no Python in the image"):
        run(client)
    assert len(client.removed) == len(container.PYTHONS)


@pytest.mark.parametrize(
    ("said", "message", "kind"),
    [
        ("exec /usr/bin/python3: exec format error", "another CPU architecture", FileUnavailable),
        ("write /x: no space left on device", "the disk is full", FileUnavailable),
        ("Mounts denied: the path /tmp/x is not shared", "cannot see", FileUnavailable),
        ("something else", "refuses the guest's container: something else", EnvcheckError),
    ],
)
def test_what_an_engine_refuses(said: str, message: str, kind: type[EnvcheckError]) -> None:
    pytest.importorskip("docker.errors")
    client = Refusing(said)
    with pytest.raises(kind, match=message):
        run(client)
    assert len(client.removed) == 1


# --- the rest


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("docker.errors")
    from envcheck.engine import docker

    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(
        FileUnavailable, match=r"no engine answers at unix://.*none\.sock"
    ) as caught:
        docker.connect()
    assert "start Docker" in caught.value.remedy
    assert "No such file" in caught.value.message


def test_an_engine_that_is_something_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("docker.errors")
    import socket

    from envcheck.engine import docker

    path = tmp_path / "odd.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    if connection.recv(4096):
                        connection.sendall(b"hello\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        with pytest.raises(FileUnavailable, match="no engine answers"):
            docker.connect()
        thread.join()


def test_a_stream_is_read_like_a_file() -> None:
    with stream.as_file(iter([b"abc", b"", b"defg", b"h"])) as handle:
        said = [handle.read(2), handle.read(4), handle.read(0), handle.read(-1), handle.read(1)]
    assert said == [b"ab", b"cdef", b"", b"gh", b""]


@pytest.mark.parametrize("size", [0, 1])
def test_a_stream_that_is_not_read_to_its_end_is_closed(size: int) -> None:
    closed = []

    def pieces():
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.append(True)

    with stream.as_file(pieces()) as handle:
        handle.read(size)
    assert closed == [True]


def test_the_staged_guest_is_readable_by_every_user(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    (tmp_path / "a" / "b").write_text("")
    (tmp_path / "a" / "b").chmod(0o600)
    container.open_to_all(tmp_path)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o644


class Late:
    """An engine's client whose container is there only after it was asked a few times to go."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.containers = self.api = self

    def create(self, **_: object) -> None:
        raise KeyboardInterrupt

    def remove_container(self, *_: object, **__: object) -> None:
        from docker.errors import APIError
        from requests import Response

        self.left -= 1
        if self.left > 0:
            answer = Response()
            answer.status_code = 404
            message = "no such container"
            raise APIError(message, response=answer)


def test_a_container_that_comes_after_ctrl_c_is_removed_too() -> None:
    client = Late(calls=3)
    with pytest.raises(KeyboardInterrupt), container._container(client, {"name": "x"}):
        pytest.fail("there is no container")
    assert client.left == 0
