"""Compilers, headers, nvcc and folders: what is found is compared with what the tools themselves say."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from envcheck.guest import cache_folders, compilers, named_variables, nvcc_files, tools


def program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on whose PATH nothing is, and which no variable describes."""
    for name in (
        *("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "LD_PRELOAD", "TRITON_LIBCUDA_PATH"),
        *("LIBRARY_PATH", "LD_LIBRARY_PATH", "TRITON_CACHE_DIR", "TRITON_HOME"),
        *("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_the_version_of_gcc_is_what_gcc_says() -> None:
    path = shutil.which("gcc")
    assert path is not None
    said = subprocess.run([path, "-dumpversion"], capture_output=True, text=True, check=True)
    assert compilers.identify(path) == ("gcc", int(said.stdout.split(".")[0]))


def test_python_h_is_where_this_interpreter_has_it() -> None:
    header = tools.python_header()
    assert header == os.path.join(sysconfig.get_paths()["include"], "Python.h")
    # Without `site` a venv does not know that it is one; the base's folder is found all the same.
    code = "import sys; sys.path.insert(0, sys.argv[1]); import envcheck.guest.tools as t"
    here = str(Path(tools.__file__).parents[2])
    said = subprocess.run(
        [sys.executable, "-E", "-S", "-B", "-c", f"{code}; print(t.python_header())", here],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == header


def test_r21_an_environment_without_compilers(bare: Path) -> None:
    seen = tools.look(cuda=None)
    assert seen.compilers == ()
    program(bare / "bin" / "gcc")
    program(bare / "bin" / "clang++-18").rename(bare / "bin" / "clang++")
    first, second = tools.look(cuda=None).compilers
    assert (first.language, first.named, first.origin) == ("c", "gcc", "PATH")
    assert (second.language, second.named, second.family) == ("c++", "clang++", "clang")


def test_cc_that_names_no_program_is_told(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc-99 -m64")
    (compiler,) = tools.look(cuda=None).compilers
    assert (compiler.named, compiler.path) == ("gcc-99 -m64", None)
    program(bare / "bin" / "gcc-99")
    (compiler,) = tools.look(cuda=None).compilers
    assert (compiler.path, compiler.version) == (str(bare / "bin" / "gcc-99"), 99)


def built(command: list[str] | str, folder: Path) -> bool:
    """Build a library as Triton does (a list) or as a shell does (a text); say whether it is one."""
    (folder / "a.c").write_text("int answer(void) { return 42; }\n")
    library = folder / "a.so"
    library.unlink(missing_ok=True)
    rest = ["a.c", "-shared", "-fPIC", "-o", "a.so"]
    whole = [*command, *rest] if isinstance(command, list) else f"{command} {shlex.join(rest)}"
    try:
        subprocess.run(
            whole, shell=isinstance(whole, str), cwd=folder, capture_output=True, check=False
        )
    except OSError:
        return False
    return library.exists()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
@pytest.mark.parametrize(
    "value",
    [
        *("gcc", "gcc -m64", "gcc-99", "", "{quoted} -m64", "{quoted}", "{spaced}", "'gcc"),
        *("env gcc", "ccache gcc", "env A=b gcc -m64", "env", "{python}", "true", "/", "{wrapper}"),
        *("{alias}", "{ccache}", "{absolute}", "nice -n1 gcc"),
    ],
)
def test_what_cc_names_is_what_can_be_built_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Each value is tried by building with it, as Triton takes it and as a shell does."""
    gcc = shutil.which("gcc")
    assert gcc is not None
    spaced = program(tmp_path / "my gcc" / "gcc", f'#!/bin/sh\nexec {gcc} "$@"\n')
    wrapper = program(tmp_path / "wrapped", f'#!/bin/sh\nexec {gcc} "$@"\n')
    (tmp_path / "compile").symlink_to(gcc)
    launcher = program(tmp_path / "bin" / "ccache", '#!/bin/sh\n[ $# = 0 ] || exec "$@"\n')
    monkeypatch.setenv("PATH", f"{launcher.parent}:{os.environ['PATH']}")
    value = value.format(
        quoted=shlex.quote(str(spaced)), spaced=spaced, python=os.path.realpath(sys.executable),
        wrapper=wrapper, alias=tmp_path / "compile", ccache=launcher, absolute=gcc,
    )  # fmt: skip
    monkeypatch.setenv("CC", value)
    found = next(c for c in compilers.look() if c.language == "c")
    usable = found.kind == "compiler"
    assert (found.one_name and usable) == built([value], tmp_path)
    assert (found.as_words and usable) == built(value, tmp_path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('#!/bin/bash\nexec pyenv exec "$@"\n', "script"),
        ('#!/bin/sh\nexec /opt/gcc-12/bin/gcc "$@"\n', "compiler"),
        ('#!/bin/sh\nexec x86_64-linux-gnu-g++ "$@"\n', "compiler"),
        ("#!/bin/sh\nexec success accident\n", "script"),
        ("\x7fELF nothing of a compiler", "other"),
        ("\x7fELF COLLECT_GCC=", "compiler"),
        ("\x7fELF clang version 18.1 in its notes, as in all that clang made", "other"),
    ],
)
def test_what_a_program_is_without_a_name_that_tells(tmp_path: Path, text: str, kind: str) -> None:
    assert compilers.kind(str(program(tmp_path / "tool", text))) == kind


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_the_bytes_of_gcc_tell_it_under_any_name(tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    assert gcc is not None
    shutil.copy(os.path.realpath(gcc), tmp_path / "compile")
    assert compilers.kind(str(tmp_path / "compile")) == "compiler"


def test_a_launcher_under_the_name_of_a_compiler_is_one(tmp_path: Path) -> None:
    """As in /usr/lib/ccache, where gcc is a link to ccache."""
    launcher = program(tmp_path / "bin" / "ccache", "\x7fELF")
    (tmp_path / "gcc").symlink_to(launcher)
    assert compilers.kind(str(tmp_path / "gcc")) == "compiler"
    assert compilers.kind(str(launcher)) == "launcher"


def test_nvcc_takes_a_folder_or_one_name(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc 13.5 was asked for each: a folder with gcc in it does, words do not."""
    program(bare / "opt" / "gcc")
    for value, expected in (
        (f"{bare}/opt", (f"{bare}/opt/gcc", True)),
        (f"{bare}/opt/gcc", (f"{bare}/opt/gcc", True)),
        (f"{bare}/opt/gcc -m64", (f"{bare}/opt/gcc", False)),
        (f"{bare}", (None, False)),
    ):
        monkeypatch.setenv("NVCC_CCBIN", value)
        (found,) = compilers.look()
        assert (found.language, found.origin, found.named) == ("nvcc", "NVCC_CCBIN", value)
        assert (found.path, found.one_name) == expected
    (seen,) = named_variables.look()
    assert (seen.variable, seen.found) == ("NVCC_CCBIN", "folder")


def test_r21c_the_link_name_of_the_driver(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = bare / "drivers"
    drivers.mkdir()
    (drivers / "libcuda.so.1").touch()
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(drivers))
    seen = tools.look(cuda=None)
    assert seen.libcuda == (str(drivers),)
    assert str(drivers) not in seen.libcuda_link
    (drivers / "libcuda.so").symlink_to("libcuda.so.1")
    assert tools.look(cuda=None).libcuda_link[0] == str(drivers)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
def test_the_release_of_nvcc_is_what_nvcc_says() -> None:
    path = shutil.which("nvcc")
    assert path is not None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    found = nvcc_files.find()
    assert found is not None
    assert f"release {found.release}," in said.stdout
    assert found.newest_gcc is not None


def toolkit(root: Path, text: str) -> Path:
    program(root / "bin" / "nvcc", text)
    header = root / "include" / "crt" / "host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text("#if defined(__GNUC__)\n\n#if __GNUC__ > 12\n\n#error --\n")
    return root


@pytest.mark.parametrize(
    ("name", "text", "release"),
    [
        (None, "x\0Cuda compilation tools, release 12.1, V12.1.105\0", "12.1"),
        ("version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}', "12.4"),
        ("version.txt", "CUDA Version 10.2.89\n", "10.2"),
        ("version.json", "{", None),
        ("version.json", "[]", None),
        ("version.json", '{"cuda": {"version": "twelve"}}', None),
    ],
)
def test_a_toolkit_tells_its_release(
    bare: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, text: str, release: str | None
) -> None:
    root = toolkit(bare / "cuda", text if name is None else "")
    if name is not None:
        (root / name).write_text(text)
    monkeypatch.setenv("CUDA_HOME", str(root))
    found = nvcc_files.find()
    assert found is not None
    assert (found.origin, found.release, found.newest_gcc) == ("CUDA_HOME", release, 12)


def test_a_script_that_calls_nvcc_is_followed(bare: Path) -> None:
    root = toolkit(bare / "cuda-12", "Cuda compilation tools, release 12.6, V12.6.20")
    program(bare / "bin" / "nvcc", f'#!/bin/sh\nexec {root}/bin/nvcc "$@"\n')
    found = nvcc_files.find()
    assert found is not None
    assert (found.path, found.release) == (str(bare / "bin" / "nvcc"), "12.6")


def test_a_toolkit_without_nvcc(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(bare / "absent"))
    found = nvcc_files.find()
    assert found is not None
    assert found.path is None


def test_folders_are_found_by_their_variables(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {role: path for role, _, path in cache_folders.paths(cuda="13.0")}
    version = f"py{sys.version_info[0]}{sys.version_info[1]}"
    assert paths["triton"] == f"{bare}/.triton/cache"
    assert paths["extensions"] == f"{bare}/.cache/torch_extensions/{version}_cu130"
    monkeypatch.setenv("TRITON_CACHE_DIR", "/x/t")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x/c")
    paths = {role: path for role, _, path in cache_folders.paths(cuda=None)}
    assert paths["triton"] == "/x/t"
    assert paths["extensions"] == f"/x/c/torch_extensions/{version}_cpu"


def test_pytorch_uses_these_folders(bare: Path) -> None:
    torch = pytest.importorskip("torch")
    extension = pytest.importorskip("torch.utils.cpp_extension")
    caches = pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
    paths = {role: path for role, _, path in cache_folders.paths(cuda=torch.version.cuda)}
    assert extension._get_build_directory("x", False) == f"{paths['extensions']}/x"
    assert caches.default_cache_dir() == paths["inductor"]


def one(path: Path) -> tuple[str, bool, bool]:
    folder = cache_folders._folder("triton", "TRITON_CACHE_DIR", str(path))
    return folder.kind, folder.exists, folder.writable


def test_what_stands_where_a_folder_is_needed(tmp_path: Path) -> None:
    assert one(tmp_path / "a" / "b") == ("folder", False, True)
    (tmp_path / "file").touch()
    assert one(tmp_path / "file") == ("other", True, False)
    assert one(tmp_path / "file" / "below") == ("other", False, False)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert one(tmp_path / "link") == ("absent", True, False)
    os.mkfifo(tmp_path / "fifo")
    assert one(tmp_path / "fifo") == ("other", True, False)


def test_mount_options_are_those_of_the_kernel() -> None:
    folder = cache_folders._folder("triton", "default", "/proc")
    options = next(
        line.split()[3].split(",")
        for line in Path("/proc/mounts").read_text().splitlines()
        if line.split()[1] == "/proc"
    )
    assert folder.noexec == ("noexec" in options)
    assert folder.read_only == ("ro" in options)


MOUNT = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from envcheck.guest import cache_folders
place, options, fill = sys.argv[2:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=True)
if fill:
    with open(f"{place}/x", "wb") as handle:
        handle.write(bytes(1 << 20))
subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)
seen = cache_folders._folder("triton", "default", f"{place}/a/b")
print(seen.writable, seen.refused, seen.filesystem, seen.read_only, seen.noexec, seen.free)
"""


@pytest.mark.parametrize(
    ("options", "fill", "expected"),
    [
        ("rw", "", "True None tmpfs False False 1048576"),
        ("ro", "", "False EROFS tmpfs True False 1048576"),
        ("noexec", "", "True None tmpfs False True 1048576"),
        ("nr_inodes=1", "", "False ENOSPC tmpfs False False 1048576"),
        ("rw", "full", "True None tmpfs False False 0"),
    ],
)
def test_mounts_are_told_to_root_as_well(
    tmp_path: Path, options: str, fill: str, expected: str
) -> None:
    """Each in a mount namespace of its own, in which this user is root."""
    become = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    if shutil.which("unshare") is None or subprocess.run([*become, "true"], check=False).returncode:
        pytest.skip("no namespace can be made here")
    here = str(Path(tools.__file__).parents[2])
    words = (sys.executable, "-c", MOUNT, here, str(tmp_path), options, fill)
    done = subprocess.run([*become, *words], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("place", ["/proc", "/proc/none/below", "/sys"])
def test_no_file_is_said_to_fit_where_none_can_be_made(place: str) -> None:
    folder = cache_folders._folder("triton", "default", place)
    assert folder.filesystem == {"p": "proc", "s": "sysfs"}[place[1]]
    with pytest.raises(OSError, match=r"."):  # whoever asks, root too
        Path(place, "file").touch()


def test_asking_leaves_nothing_behind(tmp_path: Path) -> None:
    before = tmp_path.stat()
    folder = cache_folders._folder("triton", "default", str(tmp_path))
    assert (folder.writable, folder.refused) == (True, None)
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mtime_ns == before.st_mtime_ns


def test_two_looks_at_one_machine_are_the_same(bare: Path) -> None:
    assert tools.look(cuda="13.0") == tools.look(cuda="13.0")
    # A file system that has no blocks at all is not full.
    assert cache_folders._folder("triton", "default", "/proc").free is None


def test_a_user_without_a_home(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_folders.home() is None
    seen = tools.look(cuda=None)
    assert not seen.home
    assert seen.folders[0].path == "~/.triton/cache"


def test_r25c_only_listed_variables_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "file"))
    monkeypatch.setenv("NCCL_TOPO_FILE", "/nowhere/topo.xml")
    monkeypatch.setenv("LD_PRELOAD", f"libx.so {tmp_path}/file:/nowhere.so")
    monkeypatch.setenv("GGML_CUDA_P2P", "0")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    seen = [(n.variable, n.found) for n in named_variables.look()]
    assert seen == [
        ("CUDA_HOME", "folder"),
        ("TRITON_PTXAS_PATH", "file"),
        ("NCCL_TOPO_FILE", "absent"),
        ("LD_PRELOAD", "text"),
        ("LD_PRELOAD", "file"),
        ("LD_PRELOAD", "absent"),
        ("GGML_CUDA_P2P", "text"),
    ]
