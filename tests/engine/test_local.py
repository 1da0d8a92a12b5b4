"""Real environments, read by starting their own interpreters."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from building import SM80, SM80_PTX80, site, venv, wheel
from running import envcheck, report

from envcheck.core.distribution import Distribution
from envcheck.core.request import Collected, CompileRequest, Request
from envcheck.engine import local
from envcheck.errors import EnvcheckError, FileUnavailable

CODE = SM80.read_bytes()


def python_of(environment: Path) -> str:
    return str(environment / "bin" / "python")


def collect(environment: Path) -> Collected:
    return local.collect(python_of(environment))


def packages(collected: Collected) -> dict[str, Distribution]:
    found = {d.name: d for d in collected.environment.distributions}
    assert len(found) == len(collected.environment.distributions)
    return found


def interpreters() -> list[str]:
    """Return other interpreters of this machine, one of each version, where there are some."""
    pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3"))
    named = (shutil.which(f"python3.{minor}") for minor in range(6, 16))
    found: dict[str, str] = {}
    for path in [*map(str, pyenv), *filter(None, named)]:
        asked = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0:
            found.setdefault(asked.stdout.strip(), path)
    return [found[version] for version in sorted(found, key=lambda v: int(v.split(".")[1]))]


def version_of(path: str) -> tuple[int, ...]:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, said.split()[1].split(".")[:2]))


OTHERS = interpreters()
NEW = [path for path in OTHERS if version_of(path) >= (3, 10)]
OLD = [path for path in OTHERS if version_of(path) < (3, 10)]


# The digest that names an environment


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    return [
        wheel(
            tmp_path,
            "First_Package",
            "1.0",
            {"first/__init__.py": b"x = 1\n", "first/_C.so": CODE, "first/data, odd.txt": b"1"},
        ),
        wheel(tmp_path, "second", "2.0+cu130", {"second.py": b"y = 2\n"}),
        wheel(tmp_path, "third", "3", {"third.py": b"z = 3\n"}),
    ]


def install_pip(environment: Path, *paths: Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", python_of(environment), "install"]
    quiet = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*command, *quiet, *map(str, paths)], check=True, timeout=120)


def install_uv(environment: Path, *paths: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    command = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--no-index"]
    python = ["--python", python_of(environment)]
    subprocess.run([*command, *python, *map(str, paths)], check=True, timeout=120)


def install_unzip(environment: Path, *paths: Path) -> None:
    for path in paths:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(site(environment))


def digest_by_hand(paths: list[Path]) -> str:
    """Derive the digest from the wheels themselves, as the README defines it."""
    lines = []
    for path in paths:
        name, version = path.name.split("-")[:2]
        with zipfile.ZipFile(path) as archive:
            record = archive.read(f"{name}-{version}.dist-info/RECORD").decode()
        rows = [row for row in record.splitlines() if row and ",sha256=" in row]
        rows = sorted(row.replace('"', "") for row in rows)
        digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        lines.append(f"{name.lower().replace('_', '-')}\0{version}\0{digest}\n")
    return "sha256:" + hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


@pytest.mark.parametrize(
    "install", [install_pip, install_uv, install_unzip], ids=lambda f: f.__name__
)
def test_the_digest_is_that_of_the_wheels_for_any_installer_order_and_place(
    tmp_path: Path, wheels: list[Path], install: Callable[..., None]
) -> None:
    one, two = venv(tmp_path / "one"), venv(tmp_path / "deep" / "er" / "two")
    install(one, *wheels)
    for path in reversed(wheels):
        install(two, path)
    digests = {collect(e).environment.digest for e in (one, two)}
    assert digests == {digest_by_hand(wheels)}


@pytest.mark.parametrize("python", NEW, ids=lambda p: ".".join(map(str, version_of(p))))
def test_the_digest_does_not_depend_on_the_python(
    tmp_path: Path, wheels: list[Path], python: str
) -> None:
    environment = venv(tmp_path / "venv", *wheels, python=python)
    collected = collect(environment)
    assert tuple(map(int, collected.environment.python.split(".")[:2])) == version_of(python)
    assert collected.environment.digest == digest_by_hand(wheels)


def test_running_the_environment_does_not_change_its_digest(
    tmp_path: Path, wheels: list[Path]
) -> None:
    environment = venv(tmp_path / "venv")
    install_pip(environment, *wheels)
    before = collect(environment).environment.digest
    run = [python_of(environment), "-c", "import first, second"]
    subprocess.run(run, check=True, timeout=60)
    assert list(site(environment).rglob("*.pyc"))
    assert collect(environment).environment.digest == before


@pytest.mark.parametrize("change", ["a file", "the version", "one package more", "one less"])
def test_the_digest_changes_with(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    base = wheel(tmp_path, "a", "1", {"a.py": b"x = 1\n"})
    more = wheel(tmp_path, "b", "1", {"b.py": b""})
    before = collect(venv(tmp_path / "before", base, more)).environment.digest
    after = {
        "a file": [wheel(folder, "a", "1", {"a.py": b"x = 2\n"}), more],
        "the version": [wheel(folder, "a", "1.1", {"a.py": b"x = 1\n"}), more],
        "one package more": [base, more, wheel(folder, "c", "1", {"c.py": b""})],
        "one less": [base],
    }[change]
    assert collect(venv(tmp_path / "after", *after)).environment.digest != before


def test_a_package_without_record_is_named_with_a_dash(tmp_path: Path) -> None:
    path = wheel(tmp_path, "bare", "1", {"bare.py": b""}, record=False)
    collected = collect(venv(tmp_path / "venv", path))
    assert packages(collected)["bare"].record_digest is None
    line = hashlib.sha256(b"bare\x001\x00-\n").hexdigest()
    assert collected.environment.digest == f"sha256:{line}"


def test_an_empty_environment_has_the_digest_of_nothing(tmp_path: Path) -> None:
    collected = collect(venv(tmp_path / "venv"))
    assert collected.environment.digest == f"sha256:{hashlib.sha256().hexdigest()}"
    assert collected.places == ()


# What is read


def test_compiled_files_are_placed_and_owned(tmp_path: Path, wheels: list[Path]) -> None:
    environment = venv(tmp_path / "venv", *wheels)
    (site(environment) / "loose.so").write_bytes(CODE)
    collected = collect(environment)
    assert {p.path for p in collected.places} == {"first/_C.so", "loose.so"}
    assert all(Path(p.absolute).read_bytes() == CODE for p in collected.places)
    found = packages(collected)
    assert set(found) == {"first-package", "second", "third"}
    assert found["first-package"].files == ("first/_C.so",)
    assert found["second"].version == "2.0+cu130"


def test_files_outside_the_site_folder_that_record_names_are_read(tmp_path: Path) -> None:
    path = wheel(tmp_path, "data", "1", {"data.py": b""})
    environment = venv(tmp_path / "venv", path)
    outside = environment / "lib" / "libdata.so"
    outside.write_bytes(CODE)
    record = site(environment) / "data-1.dist-info" / "RECORD"
    record.write_text(record.read_text() + "../../libdata.so,sha256=x,1\n../../gone.so,,\n")
    (place,) = collect(environment).places
    assert (place.path, place.absolute) == ("../../libdata.so", str(outside))


def test_requirements_on_torch_and_triton_are_kept_and_others_are_not(tmp_path: Path) -> None:
    lines = ("torch>=2", "triton==3.8.0; sys_platform == 'linux'", "numpy", "torchvision")
    path = wheel(tmp_path, "needy", "1", {"needy.py": b""}, requires=lines)
    found = packages(collect(venv(tmp_path / "venv", path)))
    assert found["needy"].requires == lines[:2]


def test_secrets_in_a_direct_url_are_nowhere_in_the_inventory(tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv", wheel(tmp_path, "private", "1", {"private.py": b""}))
    url = "https://user:s3cret@host.example/private-1-py3-none-any.whl?token=t0ken&x=1#sub=2"
    info = site(environment) / "private-1.dist-info"
    (info / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {}}))
    saved = tmp_path / "inventory.json"
    done = envcheck(
        "check", "--python", environment, "--arch", "ada", "-v", "--save-inventory", saved
    )
    assert done.returncode == 11
    for text in (saved.read_text(), done.stdout, done.stderr):
        assert "s3cret" not in text
        assert "t0ken" not in text
    (found,) = json.loads(saved.read_text())["environment"]["distributions"]
    assert found["direct_url"] == "https://host.example/private-1-py3-none-any.whl#sub=2"


@pytest.mark.parametrize("kind", ["finder", "path"])
def test_a_project_that_is_installed_in_place_is_read_where_it_is(
    tmp_path: Path, kind: str
) -> None:
    project = tmp_path / "my project"
    (project / "src" / "mine").mkdir(parents=True)
    (project / "src" / "mine" / "_C.so").write_bytes(CODE)
    (project / ".venv" / "lib").mkdir(parents=True)
    (project / ".venv" / "lib" / "other.so").write_bytes(CODE)
    files = {"_mine.pth": b"import sys\n" if kind == "finder" else f"{project}/src\n".encode()}
    environment = venv(tmp_path / "venv", wheel(tmp_path, "mine", "1", files))
    url = {"url": project.as_uri(), "dir_info": {"editable": True}}
    (site(environment) / "mine-1.dist-info" / "direct_url.json").write_text(json.dumps(url))
    assert [p.absolute for p in collect(environment).places] == [
        str(project / "src" / "mine" / "_C.so")
    ]


def test_linked_packages_are_read_once_and_loops_end(tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv")
    store = tmp_path / "store"
    (store / "linked").mkdir(parents=True)
    (store / "linked" / "_C.so").write_bytes(CODE)
    (store / "file.so").write_bytes(CODE)
    (store / "linked" / "loop").symlink_to(store / "linked")
    place = site(environment)
    (place / "linked").symlink_to(store / "linked")
    (place / "again").symlink_to(store / "linked")
    (place / "file.so").symlink_to(store / "file.so")
    (place / "alias.so").symlink_to("real.so")
    (place / "real.so").write_bytes(CODE)
    (place / "up").symlink_to(environment)
    (place / "root").symlink_to("/")
    found = sorted(p.path for p in collect(environment).places)
    assert found == ["again/_C.so", "file.so", "real.so"]


def test_of_a_package_installed_twice_the_one_that_is_imported_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = wheel(tmp_path, "pkg", "2", {"pkg/__init__.py": b"", "pkg/a.so": CODE, "ns/x.so": CODE})
    old = wheel(
        tmp_path,
        "pkg",
        "1",
        {
            "pkg/__init__.py": b"",
            "pkg/a.so": CODE,
            "pkg/b.so": CODE,
            "ns/x.so": b"",
            "ns/y.so": CODE,
        },
    )
    environment = venv(tmp_path / "venv", old)
    first = tmp_path / "first"
    with zipfile.ZipFile(new) as archive:
        archive.extractall(first)
    monkeypatch.setenv("PYTHONPATH", str(first))
    collected = collect(environment)
    assert packages(collected)["pkg"].version == "2"
    # A namespace package (without __init__) is the union of both folders.
    expected = {first / "pkg/a.so", first / "ns/x.so", site(environment) / "ns/y.so"}
    assert {Path(p.absolute) for p in collected.places} == expected


def test_two_dist_infos_of_one_name_in_one_folder_are_both_told(tmp_path: Path) -> None:
    one = wheel(tmp_path, "pkg", "1", {"pkg.py": b""})
    two = wheel(tmp_path, "pkg", "2", {"pkg.py": b""})
    collected = collect(venv(tmp_path / "venv", one, two))
    assert [d.version for d in collected.environment.distributions] == ["1", "2"]


BROKEN: dict[str, Callable[[Path], object]] = {
    "empty METADATA": lambda info: (info / "METADATA").write_text(""),
    "no METADATA": lambda info: (info / "METADATA").unlink(),
    "METADATA in another encoding": lambda info: (info / "METADATA").write_bytes(b"Name: \xff\n"),
    "METADATA without headers": lambda info: (info / "METADATA").write_text("\n\nhello\n"),
    "RECORD in another encoding": lambda info: (info / "RECORD").write_bytes(b"\xff\xfe,,\n"),
    "RECORD with an endless field": lambda info: (info / "RECORD").write_text("x" * 200_000),
    "RECORD with NUL": lambda info: (info / "RECORD").write_bytes(b"a\0b,c\n"),
    "RECORD with one open quote": lambda info: (info / "RECORD").write_text('"a,b\nc,d\n'),
    "RECORD is a folder": lambda info: ((info / "RECORD").unlink(), (info / "RECORD").mkdir()),
    "direct_url.json is no JSON": lambda info: (info / "direct_url.json").write_text("{"),
    "direct_url.json is a list": lambda info: (info / "direct_url.json").write_text("[1]"),
    "direct_url.json has no URL": lambda info: (info / "direct_url.json").write_text("{}"),
    "direct_url.json has a wrong URL": lambda info: (info / "direct_url.json").write_text(
        '{"url": "https://[::1", "dir_info": {"editable": true}}'
    ),
    "direct_url.json has a number": lambda info: (info / "direct_url.json").write_text(
        '{"url": 7, "dir_info": 7}'
    ),
    "an empty folder": lambda info: (shutil.rmtree(info), info.mkdir()),
    "a file": lambda info: (shutil.rmtree(info), info.write_text("hello")),
    "gone": shutil.rmtree,
}


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_dist_info_hides_no_other_package(tmp_path: Path, defect: str) -> None:
    good = wheel(tmp_path, "good", "1", {"good/_C.so": CODE})
    environment = venv(
        tmp_path / "venv", good, wheel(tmp_path, "broken", "1", {"broken/_C.so": CODE})
    )
    BROKEN[defect](site(environment) / "broken-1.dist-info")
    collected = collect(environment)
    found = packages(collected)
    assert found["good"].record_digest
    others = [name for name in found if name != "good"]
    assert all("broken" in name for name in others)
    # Whatever is known of the package, its files are read.
    assert {p.path for p in collected.places} == {"good/_C.so", "broken/_C.so"}


def test_names_in_another_encoding_are_read_under_an_escaped_name(tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv")
    with open(os.fsencode(site(environment)) + b"/caf\xe9.so", "wb") as handle:
        handle.write(SM80_PTX80.read_bytes())
    document = report("check", "--python", environment, "--arch", "hopper")
    found = {f["subject"]: f["status"] for f in document["findings"]}
    assert found["caf\\xe9.so"] == "pass"


def test_what_is_no_file_in_an_environment_is_a_problem_and_no_hang(tmp_path: Path) -> None:
    environment = venv(tmp_path / "venv", wheel(tmp_path, "good", "1", {"good/_C.so": CODE}))
    os.mkfifo(site(environment) / "fifo.so")
    document = report("check", "--python", environment, "--arch", "ampere", timeout=30)
    found = {f["subject"]: f["status"] for f in document["findings"]}
    assert found["fifo.so"] == "error"
    assert found["good/_C.so"] == "pass"
    assert document["verdict"] == "inconclusive"


# Nothing of it is imported


@pytest.mark.parametrize("place", ["site-packages", "PYTHONPATH"])
def test_nothing_of_the_environment_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    trace = tmp_path / "imported"
    plant = f"open({str(trace)!r}, 'a').write(__name__ + ' ')\n".encode()
    # Beside a package of its own, modules that the guest itself needs, under their names.
    shadows = ("json", "csv", "platform", "email", "dataclasses", "sysconfig", "mmap", "ast")
    files = {
        "canary/__init__.py": plant,
        "envcheck/__init__.py": plant,
        **{f"{n}.py": plant for n in shadows},
    }
    path = wheel(tmp_path, "canary", "1", files)
    environment = venv(tmp_path / "venv")
    folder = site(environment) if place == "site-packages" else tmp_path / "path"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    if place == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", str(folder))
    collected = collect(environment)
    assert "canary" in packages(collected)
    assert not trace.exists()


@pytest.mark.parametrize(
    "code", ["os._exit(3)", "sys.stdout.write('noise' * 300000)", "raise SystemExit(7)"]
)
def test_no_code_of_the_environment_runs_not_even_at_the_start(tmp_path: Path, code: str) -> None:
    environment = venv(tmp_path / "venv", wheel(tmp_path, "good", "1", {"good/_C.so": CODE}))
    trace = tmp_path / "ran"
    line = f"import os, sys; open({str(trace)!r}, 'w').close(); {code}\n"
    (site(environment) / "start.pth").write_text(line)
    (site(environment) / "sitecustomize.py").write_text(line)
    # It is planted where it works: a plain start of the same interpreter does run it.
    subprocess.run(
        [python_of(environment), "-c", "pass"], check=False, timeout=60, capture_output=True
    )
    assert trace.exists()
    trace.unlink()
    assert "good" in packages(collect(environment))
    assert not trace.exists()


def test_two_collections_of_one_environment_are_equal_whatever_the_hash_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = [f"../../lib{n}.so" for n in range(20)]
    path = wheel(tmp_path, "many", "1", {f"many/{n}.so": b"" for n in range(20)})
    environment = venv(tmp_path / "venv", path)
    for name in record:
        (site(environment) / name).write_bytes(b"")
    place = site(environment) / "many-1.dist-info" / "RECORD"
    place.write_text(place.read_text() + "".join(f"{name},,\n" for name in record))
    seen = []
    for seed in ("0", "1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        seen.append(collect(environment))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0].places) == 40


# Which interpreter


def test_an_environment_is_named_by_its_folder_its_interpreter_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = venv(tmp_path / "venv", wheel(tmp_path, "good", "1", {"good/_C.so": CODE}))
    monkeypatch.setenv("PATH", f"{environment / 'bin'}:{os.environ['PATH']}")
    for name in (environment, f"{environment}/", environment / "bin" / "python", "python3"):
        document = report("check", "--python", name, "--arch", "ampere")
        assert document["verdict"] == "compatible"


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


UNUSABLE: dict[str, tuple[Callable[[Path], str], str]] = {
    "missing": (lambda p: str(p / "gone" / "python"), "No such file"),
    "a folder without one": (str, "a folder without bin/python"),
    "another program": (lambda _: "/bin/true", "is not a Python interpreter"),
    "a program that fails": (lambda _: "/bin/false", "is not a Python interpreter"),
    "a file that may not run": (lambda p: str(shutil.copy(SM80, p / "x")), "Permission denied"),
    "a text": (lambda p: script(p / "x", "hello"), "Exec format error"),
    "one that says something else": (
        lambda p: script(p / "x", "#!/bin/sh\necho 3.11.2\n"),
        "is not a Python interpreter",
    ),
    "endless output": (
        lambda p: script(p / "x", "#!/bin/sh\nhead -c 50000000 /dev/zero\n"),
        "is not a Python interpreter",
    ),
    "an older Python": (lambda p: script(p / "x", "#!/bin/sh\necho 3.9\n"), "3.9 is too old"),
    "a much older Python": (lambda p: script(p / "x", "#!/bin/sh\necho 2.7\n"), "2.7 is too old"),
    "an empty name": (lambda _: "", "cannot be run"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_what_is_no_interpreter_of_use_is_exit_code_3(tmp_path: Path, kind: str) -> None:
    make, says = UNUSABLE[kind]
    done = envcheck("check", "--python", make(tmp_path), "--arch", "ada")
    assert done.returncode == 3
    assert says in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[1].startswith("envcheck: try: ")


@pytest.mark.parametrize("python", OLD, ids=lambda p: ".".join(map(str, version_of(p))))
def test_a_real_old_python_is_refused_by_its_version(python: str) -> None:
    version = ".".join(map(str, version_of(python)))
    with pytest.raises(FileUnavailable, match=f"Python {version} is too old"):
        local.collect(python)


def test_one_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    python = script(tmp_path / "python", f"#!/bin/sh\nsleep 300 &\necho $! > {pid}\nwait\n")
    monkeypatch.setattr(local, "_PROBE_DEADLINE", 1)
    with pytest.raises(FileUnavailable, match="does not answer"):
        local.collect(python)
    assert is_gone(int(pid.read_text()))


def test_an_environment_that_hangs_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    text = f"#!/bin/sh\n[ $1 = -EsSc ] && echo 3.11 && exit\nsleep 300 &\necho $! > {pid}\nwait\n"
    monkeypatch.setattr(local, "_DEADLINE", 1)
    with pytest.raises(EnvcheckError, match="took more than 1 s") as caught:
        local.collect(script(tmp_path / "python", text))
    assert caught.value.exit_code == 1
    assert is_gone(int(pid.read_text()))


def test_what_an_import_started_ends_with_the_guest(tmp_path: Path) -> None:
    """At the deadline as at Ctrl-C; of a compile these are ninja, nvcc and its parts."""
    environment, pid = venv(tmp_path / "venv"), tmp_path / "pid"
    source = (
        "import pathlib, subprocess, time\n"
        "started = subprocess.Popen(['sleep', '300'])\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(started.pid))\ntime.sleep(300)\n"
    )
    (site(environment) / "starts.py").write_text(source)
    wanted = CompileRequest(
        target="sm_120", root=str(tmp_path), cache=str(tmp_path / "cache"), imports=("starts",)
    )
    with pytest.raises(EnvcheckError, match="took more than 8 s"):
        local.run_guest(python_of(environment), Request(compile=wanted), seconds=8)
    assert is_gone(int(pid.read_text()))


def is_gone(pid: int) -> bool:
    """Say whether a process ends within seconds (a zombie has ended)."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_nothing_is_left_in_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = venv(tmp_path / "venv")
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    collect(environment)
    with pytest.raises(FileUnavailable):
        local.collect("/bin/false")
    assert list(place.iterdir()) == []


def test_the_environment_is_left_as_it_was(tmp_path: Path, wheels: list[Path]) -> None:
    environment = venv(tmp_path / "venv", *wheels)
    before = {p: p.lstat().st_mtime_ns for p in environment.rglob("*")}
    collect(environment)
    assert {p: p.lstat().st_mtime_ns for p in environment.rglob("*")} == before
