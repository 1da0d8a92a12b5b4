"""The closure of symbols and what surrounds it, against what the loader does in a real process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from build_linking import CC, exports, extension, library, module, torch

from envcheck.core.request import Place
from envcheck.guest import linked_files, loader_cache, loader_system, module_imports, symbols
from envcheck.guest.linking import link
from envcheck.guest.torch_process import preloads

needs_compiler = pytest.mark.skipif(
    CC is None or not os.path.exists("/etc/ld.so.cache"), reason="needs a C compiler and glibc"
)
PYTHON = os.environ.get("ENVCHECK_TEST_PYTHON", sys.executable)

# Opens each file as import does, in a fresh process and in one that has imported torch.
PROBE = """
import ctypes, json, os, sys
answers = {path: [] for path in sys.argv[1:]}
for after in ("", "torch"):
    if after:
        try:
            __import__(after)
        except ImportError:
            break
    for path in answers:
        out, into = os.pipe()
        if not (child := os.fork()):
            error = ""
            try:
                ctypes.CDLL(path)
            except OSError as failure:
                error = str(failure)
            with open(into, "w") as handle:
                handle.write(error)
            os._exit(0)
        os.close(into)
        with open(out) as handle:
            answers[path].append(handle.read())
        os.waitpid(child, 0)
print(json.dumps(answers))
"""


def places(site: Path) -> tuple[Place, ...]:
    found = sorted(p for p in site.rglob("*.so*") if p.is_file() and not p.is_symlink())
    return tuple(
        Place(path=str(p.relative_to(site)), absolute=str(p))
        for p in found
        if linked_files.LinkedFiles().read(str(p)) is not None
    )


def test_what_is_a_fault_is_refused_by_the_loader_and_nothing_else_that_python_imports():
    code = "import sys; print(*[p for p in sys.path if p.endswith('site-packages')], sep='\\n')"
    folders = subprocess.check_output([PYTHON, "-c", code], text=True).split()
    found = [place for folder in folders for place in places(Path(folder))]
    every = [p for p in found if Path(p.absolute).read_bytes()[:4] == b"\x7fELF"]
    linked = link(PYTHON, tuple(every), folders, cuda="13.0")
    run = subprocess.run(
        [PYTHON, "-c", PROBE, *(p.absolute for p in every)],
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(run.stdout)
    faults = {opened.path: opened for opened in linked.files}
    for place in every:
        said = answers[place.absolute]
        if place.path in faults:
            # No process that this knows of can load it.
            assert all(said), (place.path, faults[place.path])
        elif ".cpython-" in place.path:
            assert not all(said), (place.path, said)
    assert len(every) > 10


@needs_compiler
def test_each_name_that_the_loader_misses_is_found_and_no_other(tmp_path):
    """`ldd -r` binds everything, and prints what is left."""
    site = tmp_path / "site"
    good = library(site / "libgood.so", exports("here", "there"))
    made = extension(site, "here", "gone", "lost", needs=(good,), runpath="$ORIGIN/..")
    said = subprocess.run(["ldd", "-r", str(made)], capture_output=True, text=True, check=False)
    expected = {
        line.split()[2] for line in said.stdout.splitlines() if line.startswith("undefined symbol")
    }
    (opened,) = link(sys.executable, places(site), [str(site)], variables={}).files
    assert {one.name for one in opened.symbols} == expected == {"gone", "lost"}
    assert opened.symbol_count == 2


@needs_compiler
def test_what_is_weak_or_never_used_is_not_missed(tmp_path):
    source = (
        "extern void gone(void) __attribute__((weak)); extern void never(void);"
        "void *PyInit__C(void) { if (gone) gone(); return 0; }"
    )
    library(tmp_path / "site" / "ext" / "_C.so", source)
    assert not link(sys.executable, places(tmp_path / "site"), [str(tmp_path)], variables={}).files


@needs_compiler
def test_symbols_of_the_interpreter_are_there(tmp_path):
    extension(tmp_path / "site", "PyLong_FromLong", "Py_IncRef")
    assert not link(sys.executable, places(tmp_path / "site"), [str(tmp_path)], variables={}).files


@needs_compiler
def test_a_package_that_opens_its_own_library_first_is_right(tmp_path):
    site = tmp_path / "site"
    own = library(site / "ext" / "lib" / "libext.so", exports("ext_run"))
    extension(site, "ext_run", needs=(own,))
    assert not [
        f for f in link(sys.executable, places(site), [str(site)], variables={}).files if f.symbols
    ]


@needs_compiler
def test_what_needs_pytorch_is_opened_where_it_was_imported(tmp_path):
    """Without RPATH its libraries are found because they are loaded."""
    site = tmp_path / "site"
    lib = torch(site)
    extension(site, "_ZN3c106Device3strEv", needs=(lib / "libc10.so",))
    linked = link(sys.executable, places(site), [str(site)], variables={})
    assert not linked.files
    assert linked.symbols > 0


@needs_compiler
def test_few_files_are_held_open_at_a_time_and_the_answer_is_the_same(tmp_path, monkeypatch):
    site = tmp_path / "site"
    good = library(site / "libgood.so", exports("here"))
    for number in range(30):
        name = f"m{number}"
        wants = ("here", "gone") if number % 3 == 0 else ("here",)
        path = site / "p" / f"{name}.so"
        library(path, module(name, *wants), needs=(good,), runpath="$ORIGIN/..")
    expected = link(sys.executable, places(site), [str(site)], variables={})
    monkeypatch.setattr(linked_files, "_MANY", 1)
    assert link(sys.executable, places(site), [str(site)], variables={}) == expected
    assert len(expected.files) == 10
    descriptors = len(os.listdir("/proc/self/fd"))
    link(sys.executable, places(site), [str(site)], variables={})
    assert len(os.listdir("/proc/self/fd")) == descriptors


@needs_compiler
def test_broken_and_hostile_files_end_in_facts(tmp_path):
    site = tmp_path / "site"
    lib = torch(site)
    made = extension(site, "gone", needs=(lib / "libc10.so",)).read_bytes()
    chance = random.Random(11)
    for number in range(60):
        data = bytearray(made)
        for _ in range(chance.randint(1, 20)):
            data[chance.randrange(0x1000)] = chance.randrange(256)
        cut = data[: chance.randrange(64, len(data))] if number % 4 == 0 else data
        (site / "ext" / f"bad{number}.so").write_bytes(cut)
    (site / "ext" / "empty.so").write_bytes(b"")
    os.mkfifo(site / "ext" / "fifo.so")
    (site / "ext" / "loop.so").symlink_to("loop.so")
    (site / "ext" / "gone.so").symlink_to("nowhere")
    named = [p for p in (site / "ext").iterdir() if ".so" in p.name]
    every = tuple(Place(path=str(p.relative_to(site)), absolute=str(p)) for p in named)
    began = time.process_time()
    linked = link(sys.executable, every, [str(site)], variables={})
    assert time.process_time() - began < 30
    assert not linked.skipped
    assert "ext/_C.so" in {opened.path for opened in linked.files}


def test_no_program_and_another_loader_are_reasons(tmp_path):
    assert link(str(tmp_path / "none"), (), [], variables={}).skipped
    text = tmp_path / "text"
    text.write_text("#!/bin/sh\n" + "echo " * 50)
    assert "no program" in link(str(text), (), [], variables={}).skipped


OLD = b"_ZN3c105ErrorC1ENS_14SourceLocationESs"


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        (OLD, b"_ZN3c105ErrorC1E"),
        (b"_ZNK2at6Tensor4itemIfEET_v", b""),  # a template: its arguments are not followed
        (b"_ZNK3c106Device3strEv", b"_ZNK3c106Device3strE"),
        (b"_ZTVN3c105ErrorE", b"_ZTVN3c105ErrorE"),
        (b"_ZNSt6vectorE", b"_ZNSt6vectorE"),
        (b"_ZN3c10lsERSoNS_6DeviceE", b"_ZN3c10lsE"),
        (b"_Z3fooi", b"_Z3foo"),
        (b"cudaMalloc", b""),
        (b"_ZN99999c", b""),
        (b"_ZN", b""),
        (b"_Z", b""),
    ],
)
def test_what_a_name_says_before_its_arguments(name, beginning):
    assert symbols.qualified(name) == beginning


# How three releases of PyTorch load their libraries, in short.
RELEASES = {
    "2.1": """
def _preload_cuda_deps(lib_folder, lib_name):
    for path in sys.path: pass
def _load_global_deps():
    if platform.system() == 'Windows': return
    lib_name = 'libtorch_global_deps' + '.so'
    try:
        ctypes.CDLL(lib_path, mode=ctypes.RTLD_GLOBAL)
    except OSError as err:
        cuda_libs: Dict[str, str] = {'cublas': 'libcublas.so.*[0-9]', 'cudnn': 'libcudnn.so.*[0-9]'}
        for lib_folder, lib_name in cuda_libs.items():
            _preload_cuda_deps(lib_folder, lib_name)
""",
    "2.6": """
def _load_global_deps():
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        try:
            _preload_cuda_deps('cuda_nvrtc', 'libnvrtc.so.*[0-9]')
            _preload_cuda_deps('nvjitlink', 'libnvJitLink.so.*[0-9]')
        except Exception: pass
    except OSError as err:
        cuda_libs = {'cublas': 'libcublas.so.*[0-9]'}
""",
    "2.14": """
def _preload_cuda_deps(err=None, required=True):
    cuda_libs: list[tuple[str, str]] = [
        ('cublas', 'libcublasLt.so.*[0-9]'),
        ('cufile', 'libcufile.so.*[0-9]'),
    ]
    _preload_cuda_lib('nvtx', 'libnvToolsExt.so.*[0-9]', required=False)
def _load_global_deps():
    try:
        try:
            _preload_cuda_deps(required=False)
        except Exception: pass
    except OSError as err:
        _preload_cuda_deps(err)
""",
}


def test_what_pytorch_loads_first_is_read_from_its_source():
    always, failing = preloads(RELEASES["2.1"])
    assert always == []
    assert failing == [("cublas", "libcublas.so.*[0-9]"), ("cudnn", "libcudnn.so.*[0-9]")]
    always, failing = preloads(RELEASES["2.6"])
    assert [folder for folder, _ in always] == ["cuda_nvrtc", "nvjitlink"]
    assert [folder for folder, _ in failing] == ["cublas"]
    always, failing = preloads(RELEASES["2.14"])
    assert [folder for folder, _ in always] == ["cublas", "cufile", "nvtx"]
    assert failing == always
    for broken in ("", "def (", "\0", "def _load_global_deps(): pass", "(" * 10_000):
        assert preloads(broken) == ([], [])


def test_imports_outside_of_any_block_are_seen(tmp_path):
    package = tmp_path / "p"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import p.one, os\nfrom . import (\n    two,  # why\n    three as tri,\n)\n"
        "try:\n    from p import four\nexcept ImportError:\n    pass\n"
        "def f():\n    from p import five\n"
    )
    (package / "inner" / "x.py").write_text("from .._C import run\nfrom .y import *\n")
    seen = {
        name: module_imports.imports_at_top(str(tmp_path), f"p.{name}")
        for name in ("one", "two", "three", "four", "five", "_C", "inner.y", "why")
    }
    assert seen == {
        "one": True, "two": True, "three": True, "four": False, "five": False, "_C": True,
        "inner.y": True, "why": False,
    }  # fmt: skip
    assert module_imports.imports_at_top(str(tmp_path), "alone")


def test_a_broken_cache_is_no_cache():
    try:
        data = Path("/etc/ld.so.cache").read_bytes()
    except OSError:
        pytest.skip("no cache")
    assert loader_cache.parse(data)
    chance = random.Random(3)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(8):
            changed[chance.randrange(64)] = chance.randrange(256)
        assert isinstance(loader_cache.parse(bytes(changed)), dict)
        loader_cache.parse(data[: chance.randrange(len(data))])
    assert loader_cache.parse(b"") == {}


def test_levels_of_the_processor():
    levels = loader_system.processor_levels
    two = b"flags\t\t: fpu cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
    assert levels(two + b"\n") == ["x86-64-v2"]
    assert levels(two + b" avx avx2 bmi1 bmi2 f16c fma abm movbe\n") == ["x86-64-v3", "x86-64-v2"]
    assert levels(b"") == []
