"""`envcheck build` as a process: what it says, what it leaves, and how it ends when it fails.

What is built is small: a torch of two files, one of which is a library that nvcc made for
sm_120 alone. So it fits Blackwell, and does not fit Ada.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from extension_sources import extension, module
from places import Place, findings
from real_engine import guests
from running import COMMAND, envcheck, environment

from envcheck import catalog, targets
from envcheck.core import codec
from envcheck.core.request import Collected, Request
from envcheck.engine.docker import Docker
from envcheck.engine.protocol import Limits

PASSWORD, MARKER = "correct-horse-battery-staple", "marker-in-the-ca-file-4711"
PINS = ("torch", "nvidia-cuda-runtime", "tiny")
SUBJECT = "torch/lib/libtorch_cuda.so"
NOWHERE = "unix:///no/such/docker.sock"
Make = Callable[..., str]


@pytest.fixture
def place(engine: Docker, index, base: str, tmp_path: Path) -> Place:
    """Return a folder whose settings build a small image for Blackwell."""
    (tmp_path / "ca.pem").write_text(f"# {MARKER}\n")
    index.lock(tmp_path / "lock.txt", *PINS)
    index.pip_config(tmp_path / "pip.conf")
    settings = {
        "base": base,
        "lock": "lock.txt",
        "architectures": ["blackwell"],
        "pip_config": "pip.conf",
        "ca_file": "ca.pem",
        "network": "host",
    }
    made = Place(tmp_path, settings)
    made.write()
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Docker, place: Place) -> Iterator[None]:
    yield
    assert guests(engine, place.folder) == []
    assert list((place.folder / "tmp").glob("*")) == []


def fails(place: Place, *words: str | Path, code: int = 3, **more: dict[str, str]) -> str:
    """Build what cannot be built: no manifest is left; returns what was said."""
    done = place.build(*signed(place), *words, **more)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert not (place.folder / "manifest.json").exists()
    assert "\nenvcheck: try: " in done.stderr
    return done.stderr


def signed(place: Place) -> tuple[str, ...]:
    if not (place.folder / "key.pem").exists():
        assert envcheck("keygen", "-o", place.folder / "key.pem").returncode == 0
    return ("--sign", "key.pem", "-o", "manifest.json")


# --- what is built


def test_a_small_environment_fits_one_generation_and_not_the_other(
    engine: Docker, place: Place
) -> None:
    done = place.build("--arch", "blackwell", "--arch", "ada", "--format", "json")
    assert done.returncode == 10, done.stderr
    reports = {r["target"]["name"]: r for r in json.loads(done.stdout)["reports"]}
    for name, verdict, status in (
        ("blackwell", "compatible", "pass"),
        ("ada", "incompatible", "fail"),
    ):
        report = reports[name]
        assert (report["verdict"], report["assurance"]) == (verdict, "scanned")
        assert findings(report, "device-code-runs-on-target")[SUBJECT]["status"] == status
        # No Triton and no nvcc are in it, which is said and is no success.
        for check in ("triton-kernels-compile-for-target", "cuda-kernels-hold-target-code"):
            assert {f["status"] for f in findings(report, check).values()} == {"skip"}
        assert engine.inspect(f"envcheck-{name}:latest").labels["envcheck.target"] == name


def test_secrets_and_the_index_are_nowhere(engine: Docker, place: Place, index) -> None:
    good = module(place.folder, "good")
    bad = extension(place.folder, "bad", "int f(void) { return nothing_of_that_name; }\n")
    place.write(extensions=[{"name": n, "source": s} for n, s in (("bad", bad), ("good", good))])
    done = place.build(*signed(place), "--save-inventory", "facts.json", "--no-cache")
    assert done.returncode == 10, done.stderr
    assert "nothing_of_that_name" in done.stdout
    shown = envcheck(*("verify", "manifest.json", "--key", "key.pub", "-v"), cwd=place.folder)
    assert shown.returncode == 0, shown.stderr
    documents = [(place.folder / name).read_text() for name in ("manifest.json", "facts.json")]
    payload = base64.b64decode(json.loads(documents[0])["payload"]).decode()
    written = [*documents, payload, done.stdout, done.stderr, place.logs(), shown.stdout]
    secrets = [PASSWORD, MARKER, f"127.0.0.1:{index.port}"]
    held: set[str] = set()
    for tag in ("latest", "builder"):
        image = engine._client.images.get(f"envcheck-blackwell:{tag}")
        written.append(json.dumps([image.attrs, image.history()]))
        # The saved image has every layer, also what a later one removes.
        rest = b""
        for piece in image.save(chunk_size=1 << 20):
            text = rest + piece
            held |= {secret for secret in secrets if secret.encode() in text}
            rest = text[-100:]
    assert held == set()
    assert "tiny==1.0" in place.logs()
    assert [s for s in secrets if any(s in text for text in written)] == []


# --- what decides the content


@pytest.fixture
def content(place: Place) -> str:
    return place.content()


def test_what_a_recipe_changes_shows_in_the_content(
    place: Place, content: str, base: str, index, make_image: Make
) -> None:
    kernels = place.folder / "kernels"
    shutil.copytree(catalog.shipped() / "vector_add", kernels / "mine")
    lock = index.lock(place.folder / "other.txt", *PINS[:2])
    other = make_image("base-other", f"FROM {base}\nRUN echo other > /etc/other\n")
    found = {
        "nothing": content,
        "lock": place.content("--lock", lock),
        "base": place.content("--base", other),
    }
    place.write(kernels=["kernels"])
    found["kernels"] = place.content()
    with (kernels / "mine" / "kernel.py").open("a") as handle:
        handle.write("# changed\n")
    found["a kernel"] = place.content()
    assert len(set(found.values())) == len(found), found


def copied(folder: Path, *, version: str | None = None, arch_list: str | None = None) -> Path:
    """Return a folder with another envcheck in it, to be put on PYTHONPATH."""
    package = folder / "envcheck"
    shutil.copytree(Path(targets.__file__).parent, package, dirs_exist_ok=True)
    for source, name in ((targets.data_file().parent, "images"), (catalog.shipped(), "kernels")):
        shutil.copytree(source, package / name, dirs_exist_ok=True)
    changes = []
    if version is not None:
        changes.append((package / "__init__.py", '__version__ = "', f'__version__ = "{version}+'))
    if arch_list is not None:
        old, new = 'torch_cuda_arch_list = "12.0"', f'torch_cuda_arch_list = "{arch_list}"'
        changes.append((package / "images" / "targets.toml", old, new))
    for path, old, new in changes:
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
    return folder


def content_with(place: Place, checkout: Path, *words: str) -> tuple[str, str]:
    """Build with another envcheck; returns its version and the content."""
    facts = place.folder / "other.json"
    variables = environment(place.environment({"PYTHONPATH": str(checkout)}))
    told = []
    for asked in (["--version"], ["build", "--save-inventory", str(facts), *words]):
        done = subprocess.run(
            [sys.executable, "-m", "envcheck", *asked],
            capture_output=True, text=True, cwd=place.folder, env=variables, check=False,
        )  # fmt: skip
        told.append(done.stdout)
    assert facts.exists(), done.stderr
    return told[0], json.loads(facts.read_text())["environment"]["content"]


def test_another_envcheck_gives_the_same_content_and_another_arch_list_does_not(
    place: Place, content: str, tmp_path: Path
) -> None:
    newer = copied(tmp_path / "newer", version="999.1")
    version, same = content_with(place, newer, "--no-cache")
    assert "999.1+" in version
    assert same == content
    _, other = content_with(place, copied(tmp_path / "newer", arch_list="12.0+PTX"))
    assert other != content


# --- builds that are done twice


def test_two_builds_of_one_recipe_hold_the_same(place: Place) -> None:
    place.write(extensions=[{"name": "good", "source": module(place.folder, "good")}])
    done = place.build("--check-reproducible", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = findings(report, "build-is-reproducible")["content"]
    assert (found["status"], found["evidence"]["differences"]) == ("pass", [])
    assert found["evidence"]["first"] == found["evidence"]["second"]


def test_an_extension_that_embeds_the_time_is_found(place: Place) -> None:
    stamp = 'open(name + ".c", "a").write(f"long long built = {time.time_ns()}LL;")'
    source = module(place.folder, "clock", do=stamp)
    place.write(extensions=[{"name": "clock", "source": source}])
    done = place.build("--check-reproducible", "--format", "json")
    assert done.returncode == 11, done.stderr
    report = json.loads(done.stdout)
    found = findings(report, "build-is-reproducible")["content"]
    assert found["status"] == "error"
    names = {row.rsplit("/", 1)[-1] for row in found["evidence"]["differences"]}
    assert "clock.so: bytes" in names
    # The record of an installation has the hash of the library; nothing else may differ.
    assert names <= {"clock.so: bytes", "RECORD: bytes"}
    assert "clock.so" in report["summary"]["line"]


# --- extensions


def test_an_extension_that_fails_does_not_hide_the_other(place: Place) -> None:
    bad = extension(place.folder, "bad", "int f(void) { return nothing_of_that_name; }\n")
    good = module(place.folder, "good")
    place.write(extensions=[{"name": n, "source": s} for n, s in (("bad", bad), ("good", good))])
    done = place.build("--format", "json")
    assert done.returncode == 10, done.stderr
    report = json.loads(done.stdout)
    found = findings(report, "extensions-import")
    assert found["bad"]["status"] == "fail"
    assert "nothing_of_that_name" in found["bad"]["message"]
    assert any("nothing_of_that_name" in line for line in found["bad"]["evidence"]["said"])
    assert found["good"]["status"] == "pass"
    assert "built and imported, not run" in found["good"]["message"]


# --- kernels of a user


def test_kernels_that_fail_hang_or_kill_cost_themselves_alone(
    engine: Docker, place: Place, index, base: str
) -> None:
    """Built with the real Triton: one that does not compile, one that hangs, one that dies."""
    locked = (targets.data_file().parent / "locks" / "blackwell.txt").read_text()
    pin = re.search(r"^triton==[\d.]+", locked, re.MULTILINE)
    assert pin is not None
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", pin[0]]
    download += ["--only-binary=:all:", "--platform=manylinux_2_28_x86_64", "--dest", index.folder]
    download += ["--platform=manylinux_2_27_x86_64", "--python-version", python_of(engine, base)]
    subprocess.run(download, check=True)
    lock = index.lock(place.folder / "lock.txt", *PINS, "triton")
    source = (catalog.shipped() / "vector_add" / "kernel.py").read_text()
    bad = {
        "broken": source.replace("tl.load(x + at", "tl.no_such_function(x + at"),
        "hanging": f"{source}\nimport time\ntime.sleep(10000)\n",
        "killing": f"{source}\nimport os\nos.kill(os.getpid(), 9)\n",
    }
    for name, text in bad.items():
        folder = place.folder / "kernels" / name
        shutil.copytree(catalog.shipped() / "vector_add", folder)
        (folder / "kernel.py").write_text(text)
    place.write(kernels=["kernels"])
    done = place.build("--lock", lock, "--format", "json")
    assert done.returncode == 10, done.stderr
    found = findings(json.loads(done.stdout), "triton-kernels-compile-for-target")
    shipped = {k.name for k in catalog.load_all([catalog.shipped()]) if k.kind == "triton"}
    assert set(found) == shipped | set(bad)
    assert {name: found[name]["status"] for name in shipped} == dict.fromkeys(shipped, "pass")
    for name, why in (("broken", "no_such_function"), ("hanging", "30 s"), ("killing", "SIGKILL")):
        assert found[name]["status"] == "fail"
        assert why in found[name]["message"]


def python_of(engine: Docker, image: str) -> str:
    """Return the version of the Python in an image, as pip takes it."""
    answer = engine.run_guest(image, Request(), limits=Limits())
    found = codec.loads(Collected, answer.document, name="answer").environment.python
    return found.rsplit(".", 1)[0]


# --- faults


def test_an_engine_that_is_nowhere(place: Place) -> None:
    said = fails(place, "--engine", "docker", env={"DOCKER_HOST": NOWHERE})
    assert f"error: no engine answers at {NOWHERE}: No such file or directory" in said


def test_without_an_engine_a_venv_is_built_and_that_is_said(place: Place, index) -> None:
    done = place.build(env={"DOCKER_HOST": NOWHERE})
    assert done.returncode == 0, done.stderr
    told = f"no engine answers at {NOWHERE}: No such file or directory: building a venv in"
    assert told in done.stderr
    assert list(place.folder.glob(".envcheck/blackwell/**/torch/version.py"))
    assert "tiny==1.0" in place.logs()
    for secret in (PASSWORD, MARKER, f"127.0.0.1:{index.port}"):
        assert secret not in place.logs() + done.stderr + done.stdout


def test_a_base_that_is_nowhere(place: Place) -> None:
    said = fails(place, "--base", "localhost:9/no-such-base:1")
    assert "base image docker.io" not in said
    assert "localhost:9/no-such-base:1 cannot be had" in said


def test_a_base_with_another_digest(engine: Docker, place: Place, base: str) -> None:
    pinned = "sha256:" + "5" * 64
    said = fails(place, "--base", f"{base}@{pinned}")
    assert f"the one here is {engine.inspect(base).id}, not {pinned}" in said


def test_a_wheel_with_other_bytes_than_the_lock_pins(place: Place, index) -> None:
    lock = index.lock(place.folder / "other.txt", *PINS)
    right = lock.read_text().splitlines()[-1].strip()
    lock.write_text(lock.read_text().replace(right, "--hash=sha256:" + "0" * 64))
    said = fails(place, "--lock", lock)
    assert "error: tiny==1.0: the index serves other bytes than the lock pins" in said


def test_an_index_that_cannot_be_reached(place: Place, index) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    config = index.pip_config(place.folder / "other.conf", port=port)
    said = fails(place, "--pip-config", config, "--no-cache")
    assert "the package index cannot be reached from the build" in said
    assert PASSWORD not in said + place.logs()


# --- Ctrl-C


@pytest.fixture
def interrupted(place: Place) -> Callable[[Callable[[], bool]], str]:
    """Return a function that builds, interrupts when something is so, and says what was said."""

    def interrupt(when: Callable[[], bool]) -> str:
        with subprocess.Popen(
            [*COMMAND, "build", *signed(place)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=place.folder,
            env=environment(place.environment()),
        ) as child:
            try:
                while not when():
                    assert child.poll() is None, child.communicate()[1]
                    try:
                        child.wait(0.2)
                    except subprocess.TimeoutExpired:
                        continue
                child.send_signal(signal.SIGINT)
                out, said = child.communicate(timeout=120)
            finally:
                child.kill()
        assert child.returncode == 130, said
        assert out == b""
        assert b"Traceback" not in said
        assert not list(place.folder.glob("manifest*"))
        return said.decode()

    return interrupt


def running(*arguments: str) -> bool:
    """Say whether a process of this machine has these arguments; containers' have it too."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if all(os.fsencode(argument) in words for argument in arguments):
            return True
    return False


def test_ctrl_c_while_an_extension_is_built(place: Place, interrupted) -> None:
    source = extension(place.folder, "slow", "", do='subprocess.run(["sleep", "98.7654322"])')
    place.write(extensions=[{"name": "slow", "source": source}])
    said = interrupted(lambda: running("sleep", "98.7654322"))
    assert "interrupted; nothing was verified" in said
    for _ in range(150):
        if not running("sleep", "98.7654322"):
            break
        signal.sigtimedwait([], 0.2)
    assert not running("sleep", "98.7654322")


def test_ctrl_c_while_an_extension_is_imported(engine: Docker, place: Place, interrupted) -> None:
    hanging = 'void __attribute__((constructor)) hang(void) { for (;;) execlp("sleep", "sleep", "98.7654323", NULL); }\n'
    source = module(place.folder, "hanging", "#include <unistd.h>\n" + hanging)
    place.write(extensions=[{"name": "hanging", "source": source}])
    said = interrupted(lambda: running("sleep", "98.7654323"))
    assert "interrupted; nothing was verified" in said
    assert not running("sleep", "98.7654323")
