"""Images that are really built: what is in them, what is not, and that they come out the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from extension_sources import extension

from envcheck.engine import build_log, content_digest, stream
from envcheck.engine.content_digest import Content
from envcheck.engine.docker import Docker
from envcheck.engine.protocol import Built, Step
from envcheck.engine.recipe import Recipe


def build(engine: Docker, recipe: Recipe, log: Path, stage: str = "final") -> Built:
    return engine.build(recipe, log=log, progress=lambda _: None, stage=stage)


@pytest.fixture(scope="module")
def built(engine: Docker, tiny: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Built:
    log = tmp_path_factory.mktemp("log") / "build.log"
    return build(engine, replace(tiny, no_cache=True), log)


@pytest.fixture(scope="module")
def content(engine: Docker, built: Built) -> Content:
    return engine.content(built.reference)


@contextmanager
def exported(engine: Docker, reference: str) -> Iterator[tarfile.TarFile]:
    with (
        engine._created(reference) as name,
        stream.as_file(engine._client.api.export(name)) as handle,
        tarfile.open(fileobj=handle, mode="r|") as archive,
    ):
        yield archive


def test_an_image_says_what_it_is_for(engine: Docker, built: Built) -> None:
    facts = engine.inspect(built.reference)
    assert facts.user == "10001:10001"
    assert facts.labels["envcheck.target"] == "test"
    assert facts.labels["envcheck.sm"] == "sm_120"
    assert facts.labels["org.opencontainers.image.title"] == "envcheck-test"
    assert facts.variables["NVIDIA_REQUIRE_CUDA"] == "cuda>=13.0"
    assert facts.variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert facts.variables["TORCH_CUDA_ARCH_LIST"] == "12.0"
    target = json.loads(engine.read_file(built.reference, "/opt/environment/target.json"))
    assert (target["target"], target["sm"]) == ("test", "sm_120")


def test_a_build_tells_its_steps_and_keeps_its_log(built: Built) -> None:
    assert {step.state for step in built.steps} <= {"done", "cached"}
    seconds = dict(build_log.phases(built.steps))
    assert {"environment", "builder", "final"} <= seconds.keys()
    assert "tiny==1.0" in built.log.read_text()


def test_nothing_in_an_image_tells_when_or_where_it_was_made(engine: Docker, built: Built) -> None:
    with exported(engine, built.reference) as archive:
        for member in archive:
            name = member.name
            assert not name.startswith(("run/build", "root/.cache", "opt/toolchain"))
            assert not name.endswith("direct_url.json")
            if name.startswith("opt/environment"):
                assert member.mtime == 1767225600, name
                assert "/pip" not in name
            if name.startswith("opt/environment/lib") and name.endswith(".pyc"):
                handle = archive.extractfile(member)
                assert handle is not None
                # Bit 0: bound to the source by hash; without bit 1: not checked at import.
                assert int.from_bytes(handle.read(8)[4:], "little") == 1, name


def test_a_record_is_sorted_and_names_no_bytecode(
    engine: Docker, built: Built, content: Content
) -> None:
    place = next(
        path.decode() for path in content.entries if path.endswith(b"tiny-1.0.dist-info/RECORD")
    )
    rows = engine.read_file(built.reference, "/" + place).decode().splitlines()
    assert [row.split(",")[0] for row in rows] == sorted(row.split(",")[0] for row in rows)
    assert not [row for row in rows if ".pyc" in row]


@pytest.mark.parametrize("stage", ["final", "builder"])
def test_secrets_are_in_no_layer_history_or_log(
    engine: Docker, tiny: Recipe, built: Built, tmp_path: Path, stage: str
) -> None:
    secrets = [b"correct-horse-battery-staple", b"marker-in-the-ca-file-4711"]
    again = build(engine, tiny, tmp_path / "log", stage)
    image = engine._client.images.get(again.reference)
    # The saved image, not the export: a file that a later layer removes is still in its own.
    held = Held(secrets)
    for piece in image.save(chunk_size=1 << 20):
        held.feed(piece)
    assert held.found == set()
    said = json.dumps([image.attrs, image.history()]) + built.log.read_text()
    assert not [s for s in secrets if s.decode() in said]


class Held:
    """Looks for byte strings in a stream, over the seams of its pieces."""

    def __init__(self, wanted: list[bytes]) -> None:
        self.wanted = wanted
        self.found: set[bytes] = set()
        self.rest = b""

    def feed(self, piece: bytes) -> None:
        text = self.rest + piece
        self.found |= {w for w in self.wanted if w in text}
        self.rest = text[-100:]


def test_two_builds_from_nothing_hold_the_same(
    engine: Docker, tiny: Recipe, built: Built, content: Content, tmp_path: Path
) -> None:
    second = build(engine, replace(tiny, no_cache=True), tmp_path / "log")
    again = engine.content(second.reference)
    assert list(content_digest.differences(content, again)) == []
    assert again.digest == content.digest
    if built.repeatable:
        assert built.reference == second.reference


def test_a_rebuild_with_nothing_changed_is_quick(
    engine: Docker, tiny: Recipe, tmp_path: Path
) -> None:
    first = build(engine, tiny, tmp_path / "log")
    second = build(engine, tiny, tmp_path / "log")
    assert second.reference == first.reference
    assert second.seconds < 5


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"torch_cuda_arch_list": "8.9"}, "opt/environment/target.json"),
        ({"lock": "comment"}, "opt/environment/lock.txt"),
    ],
)
def test_what_is_changed_shows_in_the_digest(
    engine: Docker,
    tiny: Recipe,
    content: Content,
    tmp_path: Path,
    change: dict[str, str],
    path: str,
) -> None:
    if "lock" in change:
        lock = tmp_path / "lock.txt"
        lock.write_text(tiny.lock.read_text() + "# another\n")
        changed = replace(tiny, lock=lock)
    else:
        changed = replace(tiny, **change)
    second = build(engine, changed, tmp_path / "log")
    found = content_digest.differences(content, engine.content(second.reference))
    assert [(d.path, d.reason) for d in found] == [(path, "bytes")]


def test_an_extension_that_fails_does_not_hide_the_other(
    engine: Docker, tiny: Recipe, tmp_path: Path
) -> None:
    bad = extension(tmp_path, "bad", "int f(void) { return nothing_of_that_name; }\n")
    good = extension(tmp_path, "good", "int f(void) { return 1; }\n")
    changed = replace(tiny, extensions={"bad": bad, "good": good})
    final = build(engine, changed, tmp_path / "log")
    builder = build(engine, changed, tmp_path / "log", "builder")
    results = json.loads(engine.read_file(builder.reference, "/opt/toolchain/extensions.json"))
    assert [(row["name"], row["ok"]) for row in results] == [("bad", False), ("good", True)]
    assert any("nothing_of_that_name" in line and "error" in line for line in results[0]["tail"])
    names = {os.path.basename(path) for path in engine.content(final.reference).entries}
    assert b"good.so" in names
    assert b"bad.so" not in names
    again = build(engine, replace(changed, no_cache=True), tmp_path / "log")
    assert engine.content(again.reference).digest == engine.content(final.reference).digest


INTERRUPTED = """
import pickle, sys
from pathlib import Path
from envcheck.engine import docker
recipe = pickle.loads(Path(sys.argv[1]).read_bytes())
engine = docker.connect()
def progress(step):
    if "SLEEPING" in step.line or step.name.startswith("[builder 3/3]"):
        print("sleeping", flush=True)
try:
    engine.build(recipe, log=Path(sys.argv[2]), progress=progress)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_stops_the_build_in_the_engine(engine: Docker, tiny: Recipe, tmp_path: Path) -> None:
    import pickle

    slow = extension(tmp_path, "slow", "", do='subprocess.run(["sleep", "98.7654321"])')
    saved = tmp_path / "recipe"
    saved.write_bytes(pickle.dumps(replace(tiny, extensions={"slow": slow})))
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(saved), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"sleeping\n"
            wait_for(lambda: running("98.7654321"), 60)
            child.send_signal(signal.SIGINT)
            child.stdout.read()
            assert child.wait(60) == 130
        finally:
            child.kill()
    wait_for(lambda: not running("98.7654321"), 30)


def running(argument: str) -> bool:
    """Say whether a process of this machine has this argument; containers' have it too."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if argument.encode() in path.read_bytes().split(b"\0"):
                return True
    return False


def wait_for(what, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_progress_is_told_step_by_step(engine: Docker, tiny: Recipe, tmp_path: Path) -> None:
    steps: list[Step] = []
    engine.build(tiny, log=tmp_path / "log", progress=steps.append)
    assert [step for step in steps if step.name.startswith("[final")]
    assert steps[-1].state == "done"


def test_a_compiler_comes_from_the_bases_packages(
    engine: Docker, tiny: Recipe, plain_base: str, tmp_path: Path
) -> None:
    built = build(engine, replace(tiny, base=plain_base), tmp_path / "log")
    entries = engine.content(built.reference).entries
    assert b"usr/bin/gcc" in entries
    assert not [
        path for path in entries if path.startswith((b"var/lib/apt/lists/", b"var/log/apt"))
    ]
