"""Environments that are really built on this machine, from tiny wheels, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from building import venv, wheel

from envcheck.core import codec
from envcheck.core.request import Collected, Request
from envcheck.engine import build_log, child, content_digest, local, venv_folder
from envcheck.engine.protocol import Built, Engine, Limits, Step
from envcheck.engine.recipe import Recipe
from envcheck.engine.venv import Venv
from envcheck.engine.venv_folder import VenvFolder
from envcheck.errors import EnvcheckError, FileUnavailable

# Seconds that no other run of these tests on this machine sleeps.
NAP = f"98.{os.getpid():07d}"
PASSWORD = "correct-horse-battery-staple"
BACKEND = """
import os, subprocess, sys, time, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "{name}"
    {do}
    info = name + "-1.0.dist-info"
    with zipfile.ZipFile(folder + "/" + name + "-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(name + ".py", "value = 2\\n")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: " + name + "\\nVersion: 1.0\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return name + "-1.0-py3-none-any.whl"
"""


def lock(path: Path, *wheels: Path, digest: str | None = None) -> Path:
    lines = []
    for file in wheels:
        name, version = file.name.split("-")[:2]
        right = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest or right}\n")
    path.write_text("".join(lines))
    return path


def extension(folder: Path, name: str, do: str = "pass") -> Path:
    """Write the sources of a package that is built without any tool."""
    place = folder / f"sources-of-{name}"
    place.mkdir()
    (place / "backend.py").write_text(BACKEND.format(name=name, do=do))
    (place / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
    )
    return place


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return wheel(tmp_path, "tiny", "1.0", {"tiny.py": b"value = 1\n"})


@pytest.fixture
def recipe(tmp_path: Path, tiny: Path) -> Recipe:
    return recipe_in(tmp_path, tiny)


def recipe_in(tmp_path: Path, tiny: Path) -> Recipe:
    config = tmp_path / "pip.conf"
    # An address with a password that is never asked, for it is only a place of files.
    config.write_text(f"[global]\nno-index = true\nfind-links = {tmp_path}\n# {PASSWORD}\n")
    return Recipe(
        target="test",
        sm="sm_120",
        torch_cuda_arch_list="12.0",
        torch="none",
        cuda="13.0",
        nvidia_require_cuda="cuda>=13.0",
        base="python:3.12",
        base_digest=None,
        lock=lock(tmp_path / "lock.txt", tiny),
        builder_lock=None,
        pip_config=config,
    )


@pytest.fixture
def engine(tmp_path: Path) -> Venv:
    return Venv(tmp_path / "built")


def build(engine: Engine, recipe: Recipe, tmp_path: Path, stage: str = "final") -> Built:
    return engine.build(recipe, log=tmp_path / "log", progress=lambda _: None, stage=stage)


@dataclass(frozen=True)
class Whole:
    """Both stages, built once for the tests that only look."""

    engine: Venv
    recipe: Recipe
    final: Built
    builder: Built


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    tiny = wheel(folder, "tiny", "1.0", {"tiny.py": b"value = 1\n"})
    tool = wheel(folder, "tool", "1", {"tool.py": b"value = 3\n"})
    newer = wheel(folder, "tiny", "2.0", {"tiny.py": b"value = 22\n"})
    recipe = replace(
        recipe_in(folder, tiny),
        builder_lock=lock(folder / "builder.txt", tool, newer),
        extensions={"mine": extension(folder, "mine")},
    )
    engine = Venv(folder / "built")
    final, builder = (build(engine, recipe, folder, stage) for stage in ("final", "builder"))
    return Whole(engine, recipe, final, builder)


def digest(engine: Engine, recipe: Recipe, tmp_path: Path) -> str:
    """Build anew and return the content digest."""
    again = replace(recipe, no_cache=True)
    return engine.content(build(engine, again, tmp_path).reference).digest


def parts(engine: Venv) -> list[str]:
    """Return what lies in the engine's folder, but for its marker."""
    place = Path(engine.environment).parent
    return sorted(p.name for p in place.iterdir() if p.name != ".envcheck")


def value(built: Built, module: str) -> int:
    command = [
        f"{built.reference}/bin/python",
        "-B",
        "-c",
        f"import {module}; print({module}.value)",
    ]
    return int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


# --- what is built


def test_an_environment_holds_the_lock_and_says_what_it_is_for(
    engine: Venv, recipe: Recipe, tmp_path: Path
) -> None:
    told: list[Step] = []
    built = engine.build(recipe, log=tmp_path / "log", progress=told.append)
    assert built.reference == engine.environment
    assert [(step.id, step.state) for step in built.steps] == [
        ("environment", "done"),
        ("final", "done"),
    ]
    assert [step for step in told if "tiny-1.0" in step.line]
    assert dict(build_log.phases(built.steps)).keys() == {"environment", "final"}
    assert value(built, "tiny") == 1
    target = json.loads(engine.read_file(built.reference, "target.json"))
    executable, version = local.base_interpreter(None)
    assert target["base"] == f"{executable} {version}"
    assert (target["kernels"], target["sm"]) == ("", "sm_120")
    facts = engine.inspect(built.reference)
    assert facts.labels["envcheck.target"] == "test"
    assert facts.variables["NVIDIA_REQUIRE_CUDA"] == "cuda>=13.0"
    assert facts.size > 0
    assert (
        json.loads(engine.read_file(built.reference, f"{engine.toolchain}/extensions.json")) == []
    )
    assert not Path(built.reference, "bin", "pip").exists()
    assert parts(engine) == [".envcheck-built", "environment", "toolchain"]


def test_two_builds_from_nothing_hold_the_same_whatever_the_umask(
    engine: Venv, recipe: Recipe, tmp_path: Path
) -> None:
    given = replace(recipe, extensions={"mine": extension(tmp_path, "mine")})
    first = engine.content(build(engine, given, tmp_path).reference)
    old = os.umask(0o077)
    try:
        second = engine.content(build(engine, replace(given, no_cache=True), tmp_path).reference)
    finally:
        os.umask(old)
    assert list(content_digest.differences(first, second)) == []
    assert first.digest == second.digest


def test_what_is_changed_shows_in_the_digest(
    engine: Venv, recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    other = wheel(tmp_path, "other", "2", {"other.py": b""})
    changed = (
        recipe,
        replace(recipe, torch_cuda_arch_list="8.9"),
        replace(recipe, lock=lock(tmp_path / "other.txt", tiny, other)),
    )
    found = [engine.content(build(engine, given, tmp_path).reference).digest for given in changed]
    assert len(set(found)) == len(changed)


def test_nothing_changed_is_not_built_again(whole: Whole, tmp_path: Path) -> None:
    again = build(whole.engine, whole.recipe, tmp_path, "builder")
    assert [step.state for step in again.steps] == ["cached"]
    assert again.reference == whole.builder.reference
    assert again.seconds < 10
    assert not (tmp_path / "log").exists()


def test_other_kernels_alone_install_nothing(engine: Venv, recipe: Recipe, tmp_path: Path) -> None:
    given = replace(recipe, kernels="sha256:1")
    build(engine, recipe, tmp_path)
    again = build(engine, given, tmp_path)
    assert [(s.id, s.state) for s in again.steps] == [("environment", "cached"), ("final", "done")]
    assert json.loads(engine.read_file(again.reference, "target.json"))["kernels"] == "sha256:1"
    changed = engine.content(again.reference).digest
    assert digest(engine, given, tmp_path) == changed


@pytest.mark.parametrize("loss", ["nothing", "record", "broken", "interpreter", "builder"])
def test_what_is_not_whole_is_known(tmp_path: Path, loss: str) -> None:
    folder = VenvFolder(tmp_path / "built")
    for place in (folder.environment, folder.builder):
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "python").symlink_to(sys.executable)
    folder.record("sha256:1", "")
    assert folder.made_of("sha256:2", builder=True) is None
    record = folder.path / ".envcheck-built"
    if loss == "record":
        record.unlink()
    elif loss == "broken":
        record.write_text("[]")
    elif loss == "interpreter":
        (folder.environment / "bin" / "python").unlink()
        (folder.environment / "bin" / "python").symlink_to(tmp_path / "removed")
    elif loss == "builder":
        folder.remove(folder.builder)
    assert folder.made_of("sha256:1", builder=True) == ("" if loss == "nothing" else None)
    assert folder.made_of("sha256:1", builder=False) == (
        "" if loss in {"nothing", "builder"} else None
    )


def test_an_environment_is_made_with_the_interpreter_that_is_named(
    recipe: Recipe, tmp_path: Path
) -> None:
    other = tmp_path / "python"
    other.symlink_to(local.base_interpreter(None)[0])
    built = build(Venv(tmp_path / "built", str(other)), recipe, tmp_path)
    config = Path(built.reference, "pyvenv.cfg").read_text()
    assert f"home = {tmp_path}\n" in config


def test_the_interpreter_below_a_venv_is_its_base(whole: Whole) -> None:
    assert local.base_interpreter(whole.final.reference) == local.base_interpreter(None)


# --- extensions


def test_an_extension_that_fails_hides_no_other(
    engine: Venv, recipe: Recipe, tmp_path: Path
) -> None:
    bad = extension(tmp_path, "bad", 'print("bad.c:3: error: no such thing"); sys.exit(1)')
    given = replace(
        recipe,
        extensions={"bad": bad, "good_ops": extension(tmp_path, "good")},
        extension_lock=released(tmp_path),
    )
    built = build(engine, given, tmp_path)
    states = {step.id: step.state for step in built.steps}
    assert (states["extension bad"], states["extension good_ops"]) == ("failed", "done")
    rows = json.loads(engine.read_file(built.reference, f"{engine.toolchain}/extensions.json"))
    assert [(r["name"], r["ok"]) for r in rows] == [
        ("bad", False),
        ("good_ops", True),
        ("released", True),
    ]
    assert any("bad.c:3: error: no such thing" in line for line in rows[0]["tail"])
    assert (value(built, "good"), value(built, "released")) == (2, 2)
    assert not list(Path(built.reference).rglob("direct_url.json"))


def released(folder: Path) -> Path:
    """Make a released extension; return the lock that pins it."""
    place = extension(folder, "released")
    archive = folder / "released-1.0.tar.gz"
    (place / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: released\nVersion: 1.0\n")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(place, "released-1.0")
    pinned = folder / "extensions.lock"
    right = hashlib.sha256(archive.read_bytes()).hexdigest()
    pinned.write_text(f"released==1.0 \\\n    --hash=sha256:{right}\n")
    return pinned


def test_what_the_builder_installs_leaves_the_environment_as_it_was(whole: Whole) -> None:
    assert (value(whole.builder, "tool"), value(whole.builder, "tiny")) == (3, 22)
    assert value(whole.final, "tiny") == 1
    names = {os.path.basename(p) for p in whole.engine.content(whole.final.reference).entries}
    assert b"tool.py" not in names
    assert b"mine.py" in names


def test_a_clone_is_linked_and_its_scripts_start_its_own_interpreter(
    whole: Whole, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    venv_folder.clone(Path(whole.final.reference), source)
    script = source / "bin" / "script"
    script.write_text(f"#!{source}/bin/python\n")
    script.chmod(0o755)
    venv_folder.clone(source, target)
    assert (target / "lock.txt").stat().st_ino == (source / "lock.txt").stat().st_ino
    assert (target / "bin" / "script").read_text() == f"#!{target}/bin/python\n"
    assert os.access(target / "bin" / "script", os.X_OK)
    assert script.read_text() == f"#!{source}/bin/python\n"


def test_a_clone_without_hard_links_is_a_copy(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(venv_folder.os, "link", refuse)
    venv_folder.clone(Path(whole.final.reference), tmp_path / "clone")
    assert value(replace(whole.final, reference=str(tmp_path / "clone")), "tiny") == 1


# --- guests


def test_a_guest_runs_in_either_stage_and_sees_folders_where_they_are(
    whole: Whole, tmp_path: Path
) -> None:
    engine = whole.engine
    assert engine.seen("kernels", tmp_path) == str(tmp_path)
    for built, names in ((whole.final, {"tiny", "mine"}), (whole.builder, {"tiny", "tool"})):
        answer = engine.run_guest(
            built.reference, Request(), limits=Limits(), folders={"kernels": tmp_path}
        )
        found = codec.loads(Collected, answer.document, name="answer")
        assert {d.name for d in found.environment.distributions} == names
    assert "scratch" not in parts(engine)


def test_a_guest_in_the_builder_has_the_variables_of_its_stage(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = whole.engine
    monkeypatch.setenv("CUDA_HOME", "/somewhere/else")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/somewhere/else")
    seen: list[dict[str, str]] = []
    run = local.run_guest

    def spy(*arguments, variables, **more):
        assert Path(engine.scratch).is_dir()
        seen.append(variables)
        return run(*arguments, variables=variables, **more)

    monkeypatch.setattr(local, "run_guest", spy)
    for reference in (whole.builder.reference, engine.environment):
        engine.run_guest(reference, Request(), limits=Limits())
    assert seen[0]["CUDA_HOME"] == f"{engine.toolchain}/cuda"
    path = seen[0]["PATH"].split(os.pathsep)
    assert path[:2] == [f"{engine.toolchain}/cuda/bin", f"{whole.builder.reference}/bin"]
    assert "CUDA_HOME" not in seen[1]
    assert seen[0]["TORCH_CUDA_ARCH_LIST"] == seen[1]["TORCH_CUDA_ARCH_LIST"] == "12.0"
    assert not [v for variables in seen for v in variables if v.startswith(("TRITON_", "PIP_"))]


def test_a_guest_that_takes_too_long_is_ended(whole: Whole, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text('#!/bin/sh\ncase "$*" in *-EsSc*) echo 3.11;; *) sleep ' + NAP + ";; esac\n")
    slow.chmod(0o755)
    with pytest.raises(EnvcheckError, match="took more than 1 s"):
        whole.engine.run_guest(
            whole.final.reference, Request(), limits=Limits(seconds=1), python=str(slow)
        )
    assert not running(NAP)
    assert "scratch" not in parts(whole.engine)


def test_an_environment_that_envcheck_did_not_build_is_looked_at_too(tmp_path: Path) -> None:
    other = str(venv(tmp_path / "other"))
    (tmp_path / "other" / "target.json").write_text("[]")
    engine = Venv(tmp_path / "nowhere" / "built")
    answer = engine.run_guest(other, Request(), limits=Limits())
    assert codec.loads(Collected, answer.document, name="x").environment.python
    assert engine.inspect(other).labels == {}
    assert not (tmp_path / "nowhere" / "built").exists()


def test_what_is_not_there_is_named(engine: Venv, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1234")
    with pytest.raises(FileUnavailable, match="is no environment"):
        engine.inspect(str(tmp_path))
    with pytest.raises(FileUnavailable, match="none: cannot be read"):
        engine.content(str(tmp_path / "none"))
    with pytest.raises(FileUnavailable, match="none: cannot be read"):
        engine.read_file(str(tmp_path), "none")
    with pytest.raises(EnvcheckError, match="more than 3 bytes"):
        engine.read_file(str(tmp_path), "file", limit=3)
    with pytest.raises(EnvcheckError, match="not a regular file"):
        engine.read_file(str(tmp_path), "/dev/null")


# --- secrets


def test_no_secret_is_in_the_folder_or_the_log(
    engine: Venv, recipe: Recipe, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text(f"# {PASSWORD}\n")
    config = tmp_path / "pip.conf"
    config.write_text(
        f"{config.read_text()}extra-index-url = http://me:{PASSWORD}@127.0.0.1:9/simple\n"
    )
    build(engine, replace(recipe, ca_file=authority), tmp_path)
    files = [p for p in (tmp_path / "built").rglob("*") if p.is_file()]
    assert not [p for p in (*files, tmp_path / "log") if PASSWORD.encode() in p.read_bytes()]


def test_pips_variables_pass_only_where_they_say_how_to_fetch(
    engine: Venv, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "elsewhere"
    for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH"):
        monkeypatch.setenv(name, str(other))
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "none"))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert value(build(engine, replace(recipe, pip_config=None), tmp_path), "tiny") == 1
    assert not other.exists()


def test_a_configuration_that_is_given_is_not_overruled_by_variables(
    engine: Venv, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "none"))
    assert value(build(engine, recipe, tmp_path), "tiny") == 1


# --- faults


def failure(engine: Venv, recipe: Recipe, tmp_path: Path) -> FileUnavailable:
    """Build what cannot be built; returns the error, after which nothing may be left."""
    with pytest.raises(FileUnavailable) as caught:
        build(engine, recipe, tmp_path)
    assert caught.value.remedy
    assert "\n" not in caught.value.message
    return caught.value


def test_a_wheel_with_other_bytes_takes_the_environment_of_before_with_it(
    engine: Venv, recipe: Recipe, tiny: Path, tmp_path: Path
) -> None:
    """What is there is always what was asked for last, or nothing."""
    build(engine, recipe, tmp_path)
    wrong = lock(tmp_path / "wrong.txt", tiny, digest="0" * 64)
    error = failure(engine, replace(recipe, lock=wrong), tmp_path)
    assert error.message.startswith("tiny==1.0: the index serves other bytes than the lock pins")
    assert parts(engine) == []


def test_a_lock_without_hashes(engine: Venv, recipe: Recipe, tmp_path: Path) -> None:
    bare = tmp_path / "bare.txt"
    bare.write_text("tiny==1.0\n")
    assert (
        "does not pin everything" in failure(engine, replace(recipe, lock=bare), tmp_path).message
    )


def test_a_package_that_is_nowhere(engine: Venv, recipe: Recipe, tmp_path: Path) -> None:
    absent = tmp_path / "absent.txt"
    absent.write_text(f"absent==1.0 --hash=sha256:{'0' * 64}\n")
    error = failure(engine, replace(recipe, lock=absent), tmp_path)
    assert error.message.startswith("absent==1.0: the index has no wheel for this Python")
    assert "--base" not in error.remedy


def test_an_index_that_cannot_be_reached(engine: Venv, recipe: Recipe, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        config = tmp_path / "far.conf"
        config.write_text(f"[global]\nindex-url = http://me:{PASSWORD}@127.0.0.1:{port}/simple\n")
        error = failure(engine, replace(recipe, pip_config=config), tmp_path)
    assert "index cannot be reached" in error.message
    assert PASSWORD not in error.message + (tmp_path / "log").read_text()


def test_a_configuration_that_is_not_there(engine: Venv, recipe: Recipe, tmp_path: Path) -> None:
    given = replace(recipe, pip_config=tmp_path / "missing.conf")
    assert "missing.conf: cannot be read" in failure(engine, given, tmp_path).message


def test_a_folder_that_is_not_ours_is_left_alone(recipe: Recipe, tmp_path: Path) -> None:
    place = tmp_path / "precious"
    (place / "environment").mkdir(parents=True)
    (place / "environment" / "thesis.txt").write_text("all of it")
    error = failure(Venv(place), recipe, tmp_path)
    assert "is not empty, and envcheck did not make it" in error.message
    assert (place / "environment" / "thesis.txt").read_text() == "all of it"
    assert sorted(p.name for p in place.iterdir()) == ["environment"]


def test_only_what_envcheck_made_is_removed_from_its_folder(tmp_path: Path) -> None:
    folder = VenvFolder(tmp_path / "built")
    far = tmp_path / "far"
    far.mkdir()
    (far / "thesis.txt").write_text("all of it")
    with folder.claimed():
        (folder.path / "notes.txt").write_text("mine")
        folder.environment.symlink_to(far)
        folder.builder.mkdir()
        folder.clear()
    assert (far / "thesis.txt").read_text() == "all of it"
    assert sorted(p.name for p in folder.path.iterdir()) == [".envcheck", "notes.txt"]


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/none/built"])
def test_a_folder_that_cannot_be_made(recipe: Recipe, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    error = failure(Venv(tmp_path / place), recipe, tmp_path)
    assert "cannot be made" in error.message


def test_a_folder_that_may_not_be_written_to(recipe: Recipe, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    place = tmp_path / "closed"
    place.mkdir(mode=0o555)
    assert "cannot be made: Permission denied" in failure(Venv(place), recipe, tmp_path).message


def test_two_at_a_time_do_not_meet(engine: Venv, recipe: Recipe, tmp_path: Path) -> None:
    folder = VenvFolder(Path(engine.environment).parent)
    with folder.claimed():
        assert "another envcheck is building" in failure(engine, recipe, tmp_path).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo 3.8", r"Python 3\.8 is too old"),
        ("echo hello", "is not a Python interpreter"),
        ("exit 1", "is not a Python interpreter"),
    ],
)
def test_an_interpreter_of_no_use(recipe: Recipe, tmp_path: Path, text: str, message: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{text}\n")
    python.chmod(0o755)
    with pytest.raises(FileUnavailable, match=message):
        build(Venv(tmp_path / "built", str(python)), recipe, tmp_path)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "envcheck: base-without-venv: No module named 'ensurepip'",
            "this Python cannot make a venv",
        ),
        ("OSError: [Errno 28] No space left on device", "the disk is full where the environment"),
        ("PermissionError: [Errno 13] Permission denied: '/x/y'", "may not write to '/x/y'"),
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE",
            "certificate that is not trusted",
        ),
        ("WARNING: 401 Error, Credentials not correct for https://x/", "refuses the credentials"),
        ("envcheck: ended by signal 9", "want of memory"),
    ],
)
def test_a_step_that_fails_is_explained(
    engine: Venv,
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    message: str,
) -> None:
    def stream(command: list[str], variables: object, read: Callable[[str], None]) -> int:
        read(said)
        return 1

    monkeypatch.setattr(child, "stream", stream)
    error = failure(engine, recipe, tmp_path)
    assert message in error.message
    assert error.message.endswith(f"(log: {tmp_path / 'log'})")
    assert "docker" not in error.remedy
    assert "--base" not in error.remedy


INTERRUPTED = """
import pickle, sys
from pathlib import Path
from envcheck.engine.venv import Venv
from envcheck.engine.venv_folder import VenvFolder
recipe = pickle.loads(Path(sys.argv[1]).read_bytes())
def progress(step):
    if "SLEEPING" in step.line:
        print("sleeping", step.id, flush=True)
try:
    Venv(Path(sys.argv[2])).build(recipe, log=Path(sys.argv[3]), progress=progress)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(
    "deaf", ["", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "]
)
def test_ctrl_c_leaves_no_child_and_nothing_half_built(
    engine: Venv, recipe: Recipe, tmp_path: Path, deaf: str
) -> None:
    import pickle

    do = f'{deaf}print("SLEEPING", flush=True); subprocess.run(["sleep", "{NAP}"])'
    slow = extension(tmp_path, "slow", do)
    saved = tmp_path / "recipe"
    saved.write_bytes(pickle.dumps(replace(recipe, extensions={"slow": slow})))
    command = [sys.executable, "-c", INTERRUPTED, saved, tmp_path / "built", tmp_path / "log"]
    variables = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables) as envcheck:
        try:
            assert envcheck.stdout is not None
            assert envcheck.stdout.readline() == b"sleeping extension slow\n"
            wait_for(lambda: running(NAP), 60)
            envcheck.send_signal(signal.SIGINT)
            assert envcheck.wait(60) == 130
        finally:
            envcheck.kill()
    wait_for(lambda: not running(NAP), 10)
    assert parts(engine) == []


def running(argument: str) -> bool:
    """Say whether a process of this machine has this argument."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            return True
    return False


def wait_for(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)
