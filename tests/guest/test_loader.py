"""The loader's order, worked out, against what the loader of this system does itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from build_linking import CC, library

from envcheck.guest import loader_system
from envcheck.guest.linked_files import LinkedFiles
from envcheck.guest.loader import Opening, Process

pytestmark = pytest.mark.skipif(
    CC is None or not os.path.exists("/etc/ld.so.cache"), reason="needs a C compiler and glibc"
)

# Opens each library in a process of its own, as ctypes and import do, and says what is mapped.
PROBE = """
import ctypes, json, os, sys
answers = {}
for path in sys.argv[1:]:
    out, into = os.pipe()
    if not (child := os.fork()):
        error = ""
        try:
            ctypes.CDLL(path, mode=os.RTLD_LAZY)
        except OSError as failure:
            error = str(failure)
        with open("/proc/self/maps") as maps:
            rows = [row.split(maxsplit=5) for row in maps]
        mapped = sorted({r[5].strip() for r in rows if len(r) == 6 and ".so" in r[5]})
        with open(into, "w") as handle:
            json.dump([error, mapped], handle)
        os._exit(0)
    os.close(into)
    with open(out) as handle:
        answers[path] = json.load(handle)
    os.waitpid(child, 0)
print(json.dumps(answers))
"""
PYTHON = os.environ.get("ENVCHECK_TEST_PYTHON", sys.executable)


def started(python: str, variables: dict[str, str]) -> Process:
    files, program = LinkedFiles(), os.path.realpath(python)
    file = files.read(program)
    assert file is not None
    interpreter = file.dynamic.interpreter or ""
    system = loader_system.read(interpreter, file.machine, file.bits, variables)
    process = Process(system, files)
    process.start(program)
    return process


def of_loader(paths: list[Path], variables: dict[str, str], python: str = sys.executable):
    run = subprocess.run(
        [python, "-S", "-c", PROBE, *map(str, paths)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def compare(paths: list[Path], python: str = sys.executable, **variables: str) -> list[Opening]:
    """Compare what would be mapped with what is, for each library; return the openings."""
    process = started(python, {**os.environ, **variables})
    own = {m.file.real for m in process.maps}
    opened = []
    answers = of_loader([*paths, Path("/nothing")], variables, python)
    # What the probe itself has mapped: ctypes and what that needs.
    probe = set(answers.pop("/nothing")[1])
    for path in paths:
        error, mapped = answers[str(path)]
        opening = process.fork().open(str(path))
        opened.append(opening)
        if "undefined symbol" in error:
            continue
        if error:
            said = {opening.reason, *(m.reason or m.name for m in opening.missed)}
            assert any(error.startswith(one) for one in said if one), (path, error)
            continue
        assert not opening.missed, path
        new = {m.file.real for m in opening.new}
        assert new <= set(mapped), path
        assert set(mapped) - new - own <= probe, path
    return opened


def test_every_extension_of_the_interpreter_and_every_library_of_an_environment():
    code = "import sysconfig; print(sysconfig.get_path('stdlib'), sysconfig.get_path('platlib'))"
    said = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    standard, site = map(Path, said.stdout.split())
    found = [p for p in (standard / "lib-dynload").iterdir() if p.suffix == ".so"]
    found += [p for p in site.rglob("*.so*") if p.is_file() and p.suffix not in (".py", ".txt")]
    elf = [p for p in found if p.read_bytes()[:4] == b"\x7fELF"]
    assert len(compare(elf, PYTHON)) > 50


ONE = "int one(void) { return 1; }"


@pytest.fixture
def choice(tmp_path: Path) -> Path:
    """The same soname in four folders, for a consumer to choose among."""
    for name in ("a", "b", "c", "d"):
        library(tmp_path / name / "libchoice.so.1", ONE)
    return tmp_path


def chosen(tmp_path: Path, path: Path, **variables: str) -> tuple[str, str]:
    (opening,) = compare([path], **variables)
    (found,) = (m for m in opening.scope if "libchoice.so.1" in m.names)
    return Path(found.path).parent.name, found.how


def consumer(folder: Path, **paths: str) -> Path:
    need = folder / "a" / "libchoice.so.1"
    return library(
        folder / "libconsumer.so",
        "int one(void); int two(void) { return one(); }",
        needs=(need,),
        **paths,
    )


def test_runpath_yields_to_the_variable_and_rpath_does_not(choice):
    path = consumer(choice, runpath="$ORIGIN/b")
    assert chosen(choice, path) == ("b", "RUNPATH")
    assert chosen(choice, path, LD_LIBRARY_PATH=str(choice / "c")) == ("c", "LD_LIBRARY_PATH")
    path = consumer(choice, rpath="${ORIGIN}/b")
    assert chosen(choice, path, LD_LIBRARY_PATH=str(choice / "c")) == ("b", "RPATH")


def test_what_is_preloaded_is_taken_before_any_path(choice):
    path = consumer(choice, rpath="$ORIGIN/b")
    named = str(choice / "d" / "libchoice.so.1")
    assert chosen(choice, path, LD_PRELOAD=named) == ("d", "LD_PRELOAD")
    search = {"LD_PRELOAD": "libchoice.so.1", "LD_LIBRARY_PATH": str(choice / "c")}
    assert chosen(choice, path, **search) == ("c", "LD_PRELOAD")


def test_what_cannot_be_preloaded_is_ignored_as_the_loader_says(choice):
    (choice / "text.so").write_text("no library")
    names = ["libnowhere.so", str(choice / "none.so"), str(choice / "text.so")]
    path = consumer(choice, rpath="$ORIGIN/b")
    variables = {"LD_PRELOAD": ":".join(names)}
    assert chosen(choice, path, **variables) == ("b", "RPATH")
    said = subprocess.run(
        [sys.executable, "-S", "-c", ""],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    told = re.findall(r"object '(.*)' from LD_PRELOAD cannot be preloaded \((.*)\): ignored", said)
    process = started(sys.executable, {**os.environ, **variables})
    assert list(process.passed_over) == [name for name, _ in told] == names
    assert process.passed_over[names[2]] == f"{names[2]}: {told[2][1]}"


def test_what_is_preloaded_is_searched_before_what_the_program_needs(choice):
    """The loader's own order of the search for a symbol, from `LD_DEBUG=scopes`."""
    variables = {"LD_PRELOAD": str(choice / "d" / "libchoice.so.1")}
    said = subprocess.run(
        [sys.executable, "-S", "-c", ""],
        env={**os.environ, **variables, "LD_DEBUG": "scopes"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    scope = next(line for line in said.splitlines() if "scope 0: " in line).split("scope 0: ")[1]
    process = started(sys.executable, {**os.environ, **variables})
    mine = [os.path.realpath(loaded.path) for loaded in process.globals]
    theirs = [os.path.realpath(name) for name in scope.split()]
    assert mine[1] == variables["LD_PRELOAD"]
    assert mine[1:] == theirs[1:]


def test_entries_of_the_variable_are_parted_by_colon_or_semicolon_in_order(choice):
    path = consumer(choice)
    both = f"/nowhere;{choice / 'd'}:{choice / 'c'}"
    assert chosen(choice, path, LD_LIBRARY_PATH=both) == ("d", "LD_LIBRARY_PATH")


def test_rpath_of_what_loads_counts_and_its_runpath_does_not(choice):
    middle = consumer(choice)
    outer = "int two(void); int three(void) { return two(); }"
    top = library(choice / "libtop.so", outer, needs=(middle,), rpath=f"$ORIGIN:{choice / 'd'}")
    assert chosen(choice, top) == ("d", "RPATH")
    top = library(choice / "libtop.so", outer, needs=(middle,), runpath=f"$ORIGIN:{choice / 'd'}")
    (opening,) = compare([top])
    assert [m.name for m in opening.missed] == ["libchoice.so.1"]


def test_what_has_a_runpath_does_not_ask_what_loads_it(choice):
    middle = consumer(choice, runpath="/nowhere")
    top = library(choice / "libtop.so", needs=(middle,), rpath=f"$ORIGIN:{choice / 'd'}")
    (opening,) = compare([top])
    assert [m.name for m in opening.missed] == ["libchoice.so.1"]


def test_what_is_loaded_under_the_soname_is_taken_whatever_the_path_says(choice):
    other = library(choice / "e" / "libother.so", ONE, soname="libchoice.so.1")
    top = library(choice / "libtop.so", needs=(other, choice / "a" / "libchoice.so.1"))
    process = started(sys.executable, {})
    process.open(str(other))
    opening = process.open(str(consumer(choice, runpath="$ORIGIN/b")))
    assert [m.path for m in opening.scope][1] == str(other)
    assert top.exists()


def test_a_file_of_another_machine_is_passed_over_and_a_broken_one_is_not(choice):
    path = consumer(choice, runpath="$ORIGIN/c:$ORIGIN/d")
    other = choice / "c" / "libchoice.so.1"
    data = bytearray(other.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    other.write_bytes(data)
    assert chosen(choice, path) == ("d", "RUNPATH")
    other.write_bytes(b"text, no library at all, though as long as the header of a real one")
    (opening,) = compare([path])
    assert [(m.name, m.reason) for m in opening.missed] == [
        ("libchoice.so.1", f"{other}: invalid ELF header")
    ]


def changed(data: bytes, at: int, *values: int) -> bytes:
    return data[:at] + bytes(values) + data[at + len(values) :]


BROKEN = {
    "empty": lambda data: b"",
    "short": lambda data: data[:63],
    "text": lambda data: b"INPUT(libother.so) " * 9,
    "zeros": lambda data: bytes(len(data)),
    "big endian": lambda data: changed(data, 5, 2),
}
PASSED_OVER = {
    "32 bit": lambda data: changed(data, 4, 1),
    "no class": lambda data: changed(data, 4, 0),
    "class 3": lambda data: changed(data, 4, 3),
    "32 bit, big endian": lambda data: changed(data, 4, 1, 2),
    "s390x": lambda data: changed(changed(data, 5, 2), 18, 0, 22),
    "aarch64": lambda data: changed(data, 18, 183, 0),
    "no machine": lambda data: changed(data, 18, 0, 0),
}


@pytest.mark.skipif(sys.byteorder != "little", reason="the headers are changed for little endian")
@pytest.mark.parametrize("name", [*BROKEN, "folder"])
def test_the_loader_ends_at_a_broken_file_and_does_not_come_to_the_next(choice, name):
    path, bad = consumer(choice, runpath="$ORIGIN/c:$ORIGIN/d"), choice / "c" / "libchoice.so.1"
    whole = bad.read_bytes()
    bad.unlink()
    if name == "folder":
        bad.mkdir()
    else:
        bad.write_bytes(BROKEN[name](whole))
    for variables in ({}, {"LD_LIBRARY_PATH": str(choice / "c")}):
        (opening,) = compare([path], **variables)  # dlopen says the same
        (missed,) = opening.missed
        assert missed.refusal is not None
        assert missed.refusal.path == str(bad)
        assert missed.refusal.behind == str(choice / "d" / "libchoice.so.1")


@pytest.mark.skipif(sys.byteorder != "little", reason="the headers are changed for little endian")
@pytest.mark.parametrize("name", PASSED_OVER)
def test_the_loader_passes_over_what_is_for_another_class_or_machine(choice, name):
    path, other = consumer(choice, runpath="$ORIGIN/c:$ORIGIN/d"), choice / "c" / "libchoice.so.1"
    other.write_bytes(PASSED_OVER[name](other.read_bytes()))
    assert chosen(choice, path) == ("d", "RUNPATH")


def test_folders_for_the_processor_come_first(choice):
    levels = started(sys.executable, {}).system.hwcaps
    if not levels:
        pytest.skip("a processor without levels")
    library(choice / "b" / "glibc-hwcaps" / levels[-1] / "libchoice.so.1", ONE)
    assert chosen(choice, consumer(choice, runpath="$ORIGIN/b")) == (levels[-1], "RUNPATH")


def test_levels_of_the_processor_are_those_the_loader_names():
    system = started(sys.executable, {}).system
    loader = "/lib64/ld-linux-x86-64.so.2"
    if not os.path.exists(loader):
        pytest.skip("another machine")
    said = subprocess.run([loader, "--help"], capture_output=True, text=True, check=False).stdout
    if "glibc-hwcaps" not in said:
        pytest.skip("an older loader")
    rows = [r.strip() for r in said.splitlines() if r.strip().startswith("x86-64-v")]
    assert list(system.hwcaps) == [r.split()[0] for r in rows if "supported, searched" in r]
    folders = [r.split(" (")[0].strip() for r in said.splitlines() if "(system search path)" in r]
    assert [f.rstrip("/") for f in system.folders] == folders


def test_the_cache_holds_what_ldconfig_prints():
    ldconfig = next((p for p in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if os.path.exists(p)), "")
    if not ldconfig:
        pytest.skip("no ldconfig")
    said = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    rows = [r.strip().split(" => ") for r in said.splitlines() if " => " in r]
    cache = started(sys.executable, {}).system.cache
    assert [path for _, path in rows]
    assert sorted(path for _, path in rows) == sorted(
        e.path for entries in cache.values() for e in entries
    )
    assert {row[0].split()[0] for row in rows} == set(cache)
