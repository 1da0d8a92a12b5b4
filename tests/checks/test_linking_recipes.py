"""The recipes of broken linking get the verdict they should, and the loader agrees."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import packages
import pytest
from build_linking import (
    CC,
    NEW_ERROR,
    OLD_ERROR,
    RECIPES,
    SET_DEVICE_INT,
    Made,
    distribution,
    exports,
    library,
    module,
    torch,
    with_nvidias,
)
from data.dist_info import install
from inventories import ask, environment

from envcheck.core import codec
from envcheck.core.distribution import Distribution
from envcheck.core.linking import ByName, Choice, Linked, MissingLibrary, Opened, Unresolved
from envcheck.core.model import Finding, Inventory, Status, Torch
from envcheck.guest import collect, distributions
from envcheck.guest.linking import link

SYMBOLS, PLACE = "extension-symbols-resolve", "libraries-load-from-one-place"
NAMES, LIBC = "libraries-opened-by-name-are-there", "libc-is-new-enough"
ALL = (SYMBOLS, PLACE, NAMES, LIBC)

needs_compiler = pytest.mark.skipif(
    CC is None or not os.path.exists("/etc/ld.so.cache"), reason="needs a C compiler and glibc"
)


def observed(made: Made) -> Inventory:
    """Look at an environment as the guest does, and take the facts through a document."""
    folders = [str(made.site)]
    found = distributions.read_all(folders)
    places = tuple(collect._places(dict.fromkeys(folders), found))
    variables = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    linked = link(
        sys.executable, places, folders, cuda="13.0", variables={**variables, **made.variables}
    )
    assert not linked.skipped
    document = codec.dumps(linked)
    assert len(document) < 20_000
    return inventory(codec.loads(Linked, document, name="linked"), *found)


def inventory(linked: Linked, *found: Distribution) -> Inventory:

    torch = Torch(version="2.14.1+cu130", cuda="13.0")
    return replace(environment(distributions=found, torch=torch), linked=linked)


def findings(inventory: Inventory, sm: str = "sm_120") -> list[Finding]:
    return [finding for check in ALL for finding in ask(check, inventory, sm)]


def failing(inventory: Inventory, sm: str = "sm_120") -> list[Finding]:
    return [f for f in findings(inventory, sm) if f.status == Status.FAIL]


def said_by_the_loader(made: Made, opened: str = "ext/_C.so") -> str:
    """Return what the loader itself says where PyTorch's libraries are loaded before."""
    code = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)"
    before = made.site / "torch" / "_C.so"
    paths = [str(p) for p in (before, made.site / opened) if p.exists()]
    variables = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    run = subprocess.run(
        [sys.executable, "-S", "-c", code, *paths],
        env={**variables, **made.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stderr.strip().splitlines()[-1] if run.returncode else ""


@needs_compiler
@pytest.mark.parametrize("name", [n for n in RECIPES if n.endswith("-right")])
def test_what_is_right_passes_and_loads(tmp_path, name):
    made = RECIPES[name](tmp_path)
    assert not failing(observed(made))
    if name not in ("R14-right", "R16-right"):  # there a newer libstdc++ without all the rest
        assert said_by_the_loader(made) == ""


FAULTS = {
    "R12": (SYMBOLS, "ext 1.0: C++11 ABI clash: built for the old one", OLD_ERROR),
    "R13": (SYMBOLS, "built against another PyTorch than torch 2.14.1+cu130", SET_DEVICE_INT),
    "R13-lazy": (SYMBOLS, "built against another PyTorch", SET_DEVICE_INT),
    "R14": (LIBC, "wants GLIBCXX_3.4.99 of libstdc++.so.6", "GLIBCXX_3.4.99"),
    "R15": (SYMBOLS, "undefined symbol __nvJitLinkAddData_12_4", "__nvJitLinkAddData_12_4"),
    "R15-missing": (SYMBOLS, "built for another CUDA: needs libcudart.so.12", "libcudart.so.12"),
}


@needs_compiler
@pytest.mark.parametrize("name", FAULTS)
def test_what_the_loader_refuses_fails_for_the_reason_that_it_gives(tmp_path, name):
    made = RECIPES[name](tmp_path)
    check, message, named = FAULTS[name]
    (finding,) = failing(observed(made))
    assert (finding.check, finding.subject) == (check, "ext/_C.so")
    assert message in finding.message
    assert finding.remedy
    assert named in said_by_the_loader(made)


@needs_compiler
def test_both_names_of_an_abi_clash_are_shown_as_people_read_them(tmp_path):
    (finding,) = failing(observed(RECIPES["R12"](tmp_path)))
    assert "c10::Error::{ctor}(c10::SourceLocation, std::string)" in finding.message
    assert "std::__cxx11::string" in finding.message
    assert "torch/lib/libc10.so has the new one" in finding.message


@needs_compiler
def test_a_copy_that_a_variable_brings_is_named_with_its_remedy(tmp_path):
    seen = observed(RECIPES["R15"](tmp_path))
    (finding,) = failing(seen)
    other = str(tmp_path / "other" / "libnvJitLink.so.12")
    assert other in finding.message
    assert finding.remedy == "unset LD_LIBRARY_PATH"


@needs_compiler
def test_an_older_nccl_that_comes_first_is_named(tmp_path):
    made = RECIPES["R15-nccl"](tmp_path)
    (finding,) = failing(observed(made))
    assert (finding.check, finding.subject) == (SYMBOLS, "torch/_C.so")
    assert "ncclCommRegister" in finding.message
    assert str(tmp_path / "other" / "libnccl.so.2") in finding.message
    assert finding.remedy == "unset LD_LIBRARY_PATH"
    assert "ncclCommRegister" in said_by_the_loader(made)
    (shadow,) = ask(PLACE, observed(made), "sm_120")
    assert shadow.status == Status.WARN


@needs_compiler
@pytest.mark.parametrize(
    ("name", "gone"),
    [("R16-cudnn", "libcudnn_ops.so.9"), ("R16-nvrtc", "libnvrtc-builtins.so.12.8")],
)
def test_a_library_that_is_opened_by_name_and_gone_fails(tmp_path, name, gone):
    (finding,) = failing(observed(RECIPES[name](tmp_path)))
    assert finding.check == NAMES
    assert gone in finding.message
    assert finding.remedy.startswith("pip install --force-reinstall --no-deps 'nvidia-cu")


@needs_compiler
def test_a_part_of_another_cudnn_fails(tmp_path):
    made = RECIPES["R17-mixed"](tmp_path)
    # RUNPATH yields to the variable.
    (finding,) = failing(observed(made))
    assert finding.check == PLACE
    assert str(tmp_path / "other") in finding.message


@needs_compiler
@pytest.mark.parametrize(
    ("recipe", "target", "sm", "status"),
    [
        ("R20", "rtx-5090", "sm_120", Status.FAIL),
        ("R20", "rtx-4090", "sm_89", Status.FAIL),
        ("R20", "ada", "sm_89", Status.WARN),
        ("R20", "h100", "sm_90", Status.PASS),
        ("R20b", "h100", "sm_90", Status.FAIL),
        ("R20b", "rtx-4090", "sm_89", Status.FAIL),
    ],
)
def test_a_libcuda_that_is_not_the_drivers(tmp_path, recipe, target, sm, status):
    from dataclasses import replace

    from inventories import named, question

    from envcheck.core.model import Target

    seen = observed(RECIPES[recipe](tmp_path))
    asked = replace(question(seen, sm), target=Target(name=target, sm=sm))
    (finding,) = (f for f in named(PLACE).run(asked) if f.subject == "libcuda.so.1")
    assert finding.status == status


def test_without_facts_each_is_left_out():
    for check in ALL:
        (finding,) = ask(check, environment(), "sm_120")
        assert finding.status == Status.SKIP
        assert not finding.required


def test_musl_is_no_fault():
    for finding in findings(inventory(Linked(skipped="loaded by /lib/ld-musl-x86_64.so.1"))):
        assert finding.status == Status.SKIP


def linked(*files: Opened, **more: object) -> Inventory:
    return inventory(Linked(looked_at=3, symbols=9, files=files, **more))


def statuses(seen: Inventory, check: str) -> set[Status]:
    return {f.status for f in ask(check, seen, "sm_120")}


def test_the_drivers_libraries_are_the_hosts():
    lib = MissingLibrary(name="libcuda.so.1", by="ext/_C.so")
    opened = Opened(path="ext/_C.so", module=True, imported=True, libraries=(lib,))
    assert statuses(linked(opened), SYMBOLS) == {Status.PASS}


def test_what_only_some_machines_can_load_is_no_fault():
    lib = MissingLibrary(name="libmpi.so.40", by="p/plugin.so")
    for opened in (
        Opened(path="p/plugin.so", module=False, libraries=(lib,)),
        Opened(path="p/plugin.so", module=True, imported=False, libraries=(lib,)),
    ):
        assert statuses(linked(opened), SYMBOLS) == {Status.SKIP, Status.PASS}
    opened = Opened(path="p/plugin.so", module=True, imported=True, libraries=(lib,))
    assert statuses(linked(opened), SYMBOLS) == {Status.FAIL}


def test_a_library_that_the_package_brings_is_its_own_affair():
    lib = MissingLibrary(name="libp.so", by="p/_C.so", elsewhere=("p/lib/libp.so",))
    opened = Opened(path="p/_C.so", module=True, imported=True, libraries=(lib,))
    assert statuses(linked(opened), SYMBOLS) == {Status.PASS}


def test_builds_for_several_cudas_in_one_package_are_no_fault():
    lib = MissingLibrary(name="libcudart.so.11.0", by="b", others=("libcudart.so.13",))
    opened = Opened(path="p/libp_cuda118.so", module=False, torch=True, libraries=(lib,))
    assert statuses(linked(opened), SYMBOLS) == {Status.SKIP, Status.PASS}


def test_pytorchs_own_spare_libraries_do_not_decide():
    symbol = Unresolved(name="MPI_Init", by="torch/lib/libtorchtest.so")
    opened = Opened(path="torch/lib/libtorchtest.so", module=False, torch=True, symbols=(symbol,))
    assert Status.FAIL not in statuses(linked(opened), SYMBOLS)


@pytest.mark.parametrize(
    "name", ["_Z", "_ZN", "_ZNSt", "_Z" + "N1a" * 400, "\x1b[2J", "_ZN3c10E\0"]
)
def test_names_that_nobody_can_read_are_shown_without_harm(name):
    symbol = Unresolved(name=name, by="p/_C.so")
    opened = Opened(path="p/_C.so", module=True, symbols=(symbol,), symbol_count=1)
    (finding,) = (f for f in ask(SYMBOLS, linked(opened), "sm_120") if f.status == Status.FAIL)
    assert finding.message.isprintable()
    assert len(finding.message) < 400


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PyUnstable_Module_SetGIL", "built for another Python than 3.11.7"),
        ("aoti_torch_new_shim", "built against another PyTorch than torch 2.14.1+cu130"),
        ("_ZN2at4_ops4mm34callE", "built against another PyTorch than torch 2.14.1+cu130"),
        ("sox_open", "no library that it loads has it"),
    ],
)
def test_what_is_missing_says_of_whom(name, message):
    symbol = Unresolved(name=name, by="p/_C.so")
    opened = Opened(path="p/_C.so", module=True, symbols=(symbol,), symbol_count=1)
    (finding,) = (f for f in ask(SYMBOLS, linked(opened), "sm_120") if f.status == Status.FAIL)
    assert message in finding.message
    assert name in finding.message or "at::_ops" in finding.message


def test_files_of_one_package_that_fail_alike_are_one_finding():
    def opened(number: int, name: str) -> Opened:
        lib = MissingLibrary(name=name, by=f"p/m{number}.so")
        return Opened(path=f"p/m{number}.so", module=True, imported=True, libraries=(lib,))

    files = [opened(n, "librmm.so") for n in range(40)]
    clash = Unresolved(name=OLD_ERROR, by="p/n.so", near=OLD_ERROR + "__cxx11", near_in="torch/l")
    files.append(Opened(path="p/n.so", module=False, torch=True, symbols=(clash,), symbol_count=1))
    found = [f for f in ask(SYMBOLS, linked(*files), "sm_120") if f.status == Status.FAIL]
    assert [f.subject for f in found] == ["p/m0.so", "p/n.so"]
    assert "needs librmm.so" in found[0].message
    assert "39 other file(s)" in found[0].message
    assert len(found[0].evidence["files"]) == 40


def test_a_copy_from_elsewhere_is_a_warning_and_names_both():
    choice = Choice(
        name="libcublas.so.12",
        path="/usr/local/cuda/lib64/libcublas.so.12",
        how="LD_LIBRARY_PATH",
        opened="torch/_C.so",
        others=("nvidia/cublas/lib/libcublas.so.12",),
    )
    (finding,) = ask(PLACE, linked(choices=(choice,)), "sm_120")
    assert finding.status == Status.WARN
    assert choice.path in finding.message
    assert choice.others[0] in finding.message
    assert finding.remedy == "unset LD_LIBRARY_PATH"


def test_two_runtimes_in_one_process_are_a_warning():
    seen = linked(majors=(("a/libcudart.so.12", "b/libcudart.so.13"),))
    (finding,) = ask(PLACE, seen, "sm_120")
    assert finding.status == Status.WARN


def test_a_cudnn_that_compiles_everything_itself_needs_no_other_parts():
    path = "nvidia/cudnn/lib/libcudnn.so.9"
    owner = Distribution(
        name="nvidia-cudnn-jit-cu12", version="9.1", record_digest=None, files=(path,)
    )
    by_name = (ByName(name="libcudnn_cnn.so.9", opener=path),)
    seen = inventory(Linked(looked_at=1, by_name=by_name), owner)
    (finding,) = ask(NAMES, seen, "sm_120")
    assert (finding.status, finding.required) == (Status.WARN, False)


def test_a_library_that_is_opened_by_name_and_lacks_one_itself_fails():
    """As PyTorch's linear algebra does after `pip uninstall nvidia-cusolver`."""
    opener, path = "torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cuda_linalg.so"
    by_name = (ByName(name="libtorch_cuda_linalg.so", opener=opener, path=path),)
    lacking = MissingLibrary(name="libcusolver.so.12", by=path)
    opened = Opened(path=path, module=False, torch=True, libraries=(lacking,))
    (finding,) = ask(
        NAMES, inventory(Linked(looked_at=1, by_name=by_name, files=(opened,))), "sm_120"
    )
    assert finding.status == Status.FAIL
    assert "which needs libcusolver.so.12, and that is not there" in finding.message
    known = replace(lacking, elsewhere=("nvidia/cusolver/lib/libcusolver.so.12",))
    opened = replace(opened, libraries=(known,))
    (finding,) = ask(
        NAMES, inventory(Linked(looked_at=1, by_name=by_name, files=(opened,))), "sm_120"
    )
    assert finding.status == Status.PASS


def test_every_recipe_of_the_script_is_told_of_here():
    named = {*FAULTS, "R15-nccl", "R16-cudnn", "R16-nvrtc", "R17-mixed", "R20", "R20b"}
    assert set(RECIPES) == named | {n for n in RECIPES if n.endswith("-right")}


@pytest.mark.parametrize("check", ["libc-is-new-enough", "libraries-load-from-one-place"])
def test_where_no_file_was_opened_nothing_passes(check: str) -> None:
    seen = inventory(Linked())
    (finding,) = ask(check, seen, "sm_90")
    assert (finding.status, finding.required) == (Status.SKIP, False)


def test_a_refused_file_that_nobody_owns_is_to_be_replaced() -> None:
    refused = Opened(path="bad/trunc.so", module=True, refused="past the end of the file")
    seen = linked(refused)
    (finding,) = ask("extension-symbols-resolve", seen, "sm_90")
    assert finding.status is Status.FAIL
    assert finding.remedy == (
        "remove bad/trunc.so, which no distribution owns, or put a whole one there"
    )


def cut(data: bytes) -> bytes:
    return data[: len(data) // 3]


def zeroed(data: bytes) -> bytes:
    return bytes(len(data))


def blank_behind_its_header(data: bytes) -> bytes:
    """As after a lost power supply: the first block was written, the others were not."""
    return data[:4096] + bytes(len(data) - 4096)


@needs_compiler
@pytest.mark.parametrize("damage", [cut, zeroed, blank_behind_its_header])
@pytest.mark.parametrize("name", ["libc10.so", "libc10_cuda.so"])
def test_a_damaged_library_of_torch_is_named_and_put_back_with_its_package(tmp_path, name, damage):
    made = RECIPES["R12-right"](tmp_path)
    lib = made.site / "torch" / "lib"
    files = [*lib.glob("*.so"), made.site / "torch" / "_C.so"]
    distribution(made.site, "torch", "2.14.1", *files)
    path = lib / name
    path.write_bytes(damage(path.read_bytes()))
    failed = [f for f in failing(observed(made)) if f.check == SYMBOLS]
    assert {f.subject for f in failed} >= {"torch/_C.so", f"torch/lib/{name}"}
    first = next(f for f in failed if f.subject == "torch/_C.so")
    assert f"torch/lib/{name} is damaged: " in first.message
    remedy = "pip install --force-reinstall --no-deps 'torch==2.14.1'"
    assert {f.remedy for f in failed} == {remedy}


@needs_compiler
@pytest.mark.parametrize("damage", [zeroed, lambda data: b"text " * 20, lambda data: b"short"])
def test_a_module_of_python_that_is_no_elf_file_is_refused(tmp_path, damage):
    suffix = EXTENSION_SUFFIXES[0]
    made = library(tmp_path / "ext" / f"_C{suffix}", module("_C"))
    (tmp_path / "ext" / "__init__.py").write_text("from ext import _C\n")
    distribution(tmp_path, "ext", "1.0", made)
    made.write_bytes(damage(made.read_bytes()))
    (finding,) = failing(observed(Made(tmp_path)))
    assert (finding.check, finding.subject) == (SYMBOLS, f"ext/_C{suffix}")
    assert finding.remedy == "pip install --force-reinstall --no-deps 'ext==1.0'"
    said = said_by_the_loader(Made(tmp_path), f"ext/_C{suffix}")
    assert said.rpartition(": ")[2] in finding.message


@needs_compiler
def test_a_script_of_the_linker_that_nothing_loads_is_no_fault(tmp_path):
    script = tmp_path / "ext" / "libother.so"
    script.parent.mkdir()
    script.write_text("/* GNU ld script */ GROUP ( libother.so.1 )" + " " * 40)
    distribution(tmp_path, "ext", "1.0", script)
    assert not failing(observed(Made(tmp_path)))


@needs_compiler
def test_a_broken_copy_on_the_loaders_path_is_told_with_what_it_hides(tmp_path):
    made = RECIPES["R15-right"](tmp_path)
    bad = tmp_path / "other" / "libnvJitLink.so.12"
    bad.parent.mkdir()
    bad.write_bytes(b"\0" * 4096)
    broken = Made(made.site, {"LD_LIBRARY_PATH": str(bad.parent)})
    (finding,) = failing(observed(broken))
    assert (finding.check, finding.subject) == (SYMBOLS, "ext/_C.so")
    assert f"{bad} is damaged: invalid ELF header" in finding.message
    assert "does not come to nvidia/nvjitlink/lib/libnvJitLink.so.12" in finding.message
    assert finding.remedy == f"take {bad.parent} off LD_LIBRARY_PATH"
    assert "invalid ELF header" in said_by_the_loader(broken)


@needs_compiler
@pytest.mark.parametrize("content", [b"", b"text", b"\0" * 4096, None])
def test_a_libcuda_that_is_no_library_ends_the_search_for_the_drivers(tmp_path, content):
    made = RECIPES["R20"](tmp_path)
    folder = Path(made.variables["LD_LIBRARY_PATH"])
    path = folder / "libcuda.so.1"
    path.unlink()
    if content is None:
        path.mkdir()  # as an engine makes where a mount has no source
    else:
        path.write_bytes(content)
    (finding,) = (f for f in ask(PLACE, observed(made), "sm_120") if f.subject == "libcuda.so.1")
    assert finding.status == Status.FAIL
    assert finding.remedy == f"take {folder} off the loader's path"
    code = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **made.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    problem = finding.message.split(": ")[1]
    assert f"{path}: {problem}" in run.stderr


@pytest.mark.parametrize(
    ("how", "problem", "status"),
    [
        ("ld.so.cache", "file too short", Status.WARN),
        ("default folder", "file too short", Status.WARN),
        ("ld.so.cache", "invalid ELF header", Status.FAIL),
        ("LD_LIBRARY_PATH", "file too short", Status.FAIL),
    ],
)
def test_an_empty_libcuda_that_an_engine_left_is_mounted_over(how, problem, status):
    choice = Choice(
        name="libcuda.so.1", path="/usr/lib/libcuda.so.1", how=how, opened="x", refused=problem
    )
    (finding,) = ask(PLACE, linked(choices=(choice,)), "sm_120")
    assert finding.status == status
    assert finding.remedy


PINS = ("nvidia-nccl-cu13==2.30.7", "nvidia-cudnn-cu13==9.24.0.43")


def pinned(made: Made, **installed: str) -> Inventory:
    """Look at an environment whose PyTorch pins NVIDIA's wheels, with these of them installed."""
    torch = Torch(version="2.14.1+cu130", cuda="13.0")
    paths = [p for p in (made.site / "torch").rglob("*") if p.is_file()]
    files = {str(p.relative_to(made.site)): p.read_bytes() for p in paths}
    install(made.site, "torch", "2.14.1", requires=PINS, files=files)
    for name, version in installed.items():
        install(made.site, name.replace("_", "-"), version)
    linked = observed(made).linked
    return replace(packages.inventory(made.site, torch=torch), linked=linked)


@needs_compiler
def test_a_release_of_nccl_that_torch_was_not_built_with_is_what_is_put_back(tmp_path):
    """Seen with torch 2.14.1 and nvidia-nccl-cu13 2.27.7: undefined symbol: ncclCommResume."""
    made = with_nvidias(tmp_path, "libnccl.so.2", "ncclCommResume", has=("ncclCommInitRank",))
    seen = pinned(made, nvidia_nccl_cu13="2.27.7", nvidia_cudnn_cu13="9.24.0.43")
    (finding,) = (f for f in failing(seen) if f.check == SYMBOLS)
    assert finding.message == (
        "torch 2.14.1: the nvidia/nccl/lib/libnccl.so.2 that is loaded is not the one that torch "
        "2.14.1+cu130 was built with: undefined symbol ncclCommResume"
    )
    assert finding.remedy == ("pip install --force-reinstall --no-deps 'nvidia-nccl-cu13==2.30.7'")
    assert "ncclCommResume" in said_by_the_loader(made)


def systems_cudnn(folder: Path, release: str, *, own: bool) -> Made:
    """Make a PyTorch to which LD_LIBRARY_PATH brings a cuDNN as NVIDIA's packages for systems do."""
    made = with_nvidias(folder, "libcudnn.so.9", "cudnnCreate", has=("cudnnCreate",))
    copy = made.site / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    system = folder / "usr" / f"libcudnn.so.{release}"
    system.parent.mkdir()
    (copy.rename if not own else lambda to: to.write_bytes(copy.read_bytes()))(system)
    (system.parent / "libcudnn.so.9").symlink_to(system.name)
    return replace(made, variables={"LD_LIBRARY_PATH": str(system.parent)})


@needs_compiler
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("release", "refused"), [("9.12.0", True), ("9.24.1", False)])
def test_a_cudnn_of_the_system_is_named_and_an_older_one_fails(tmp_path, release, refused, own):
    """RuntimeError in torch.backends.cudnn: compiled against (9, 24, 0), found (9, 12, 0)."""
    made = systems_cudnn(tmp_path, release, own=own)
    path = str(tmp_path / "usr" / f"libcudnn.so.{release}")
    there = {"nvidia_cudnn_cu13": "9.24.0.43"} if own else {}
    found = [f for f in ask(PLACE, pinned(made, **there), "sm_120") if f.subject == "libcudnn.so.9"]
    assert {f.status.value for f in found} == ({"fail", "warn"} if refused else {"warn"})
    assert all(path in f.message and "LD_LIBRARY_PATH" in f.message for f in found)
    assert found[0].remedy == (
        "unset LD_LIBRARY_PATH"
        if own or refused
        else "pip install --force-reinstall --no-deps 'nvidia-cudnn-cu13==9.24.0.43'"
    )


@needs_compiler
def test_a_library_of_the_system_that_nothing_pins_is_named_and_no_fault(tmp_path):
    made = systems_cudnn(tmp_path, "9.12.0", own=False)
    found = ask(PLACE, observed(made), "sm_120")
    (finding,) = (f for f in found if f.subject == "libcudnn.so.9")
    assert (finding.status.value, finding.required) == ("pass", False)
    assert finding.message.startswith(f"{tmp_path}/usr/libcudnn.so.9.12.0 is loaded")


@needs_compiler
def test_an_older_copy_that_is_preloaded_is_named(tmp_path):
    made = RECIPES["R15-nccl-right"](tmp_path)
    named = str(tmp_path / "other" / "libnccl.so.2")
    made = replace(made, variables={"LD_PRELOAD": named})
    seen = observed(made)
    (finding,) = failing(seen)
    assert (finding.check, finding.remedy) == (SYMBOLS, "unset LD_PRELOAD")
    assert f"ncclCommRegister: {named} does not have it" in finding.message
    assert "ncclCommRegister" in said_by_the_loader(made)
    (shadow,) = ask(PLACE, seen, "sm_120")
    assert (shadow.status, shadow.remedy) == (Status.WARN, "unset LD_PRELOAD")
    assert shadow.message.endswith("LD_PRELOAD names it")


@needs_compiler
def test_another_libtorch_that_is_preloaded_is_named(tmp_path):
    """Its symbols are those of another PyTorch, which the extension ends with."""
    made = RECIPES["R12-right"](tmp_path)
    other = library(tmp_path / "other" / "libc10.so", exports("_ZN3c106Device3strEv"))
    made = replace(made, variables={"LD_PRELOAD": str(other)})
    seen = observed(made)
    (shadow,) = (f for f in ask(PLACE, seen, "sm_120") if f.status is Status.WARN)
    assert shadow.subject == "libc10.so"
    assert shadow.message.startswith(f"{other} is loaded instead of the environment's torch/lib/")
    assert any(f.remedy == "unset LD_PRELOAD" for f in failing(seen))
    assert said_by_the_loader(made)


@needs_compiler
def test_pytorch_itself_ends_at_another_libtorch_that_is_preloaded(tmp_path):
    """Its own copy exports the name, and is not loaded: seen with libc10.so of 2.8.0 and torch 2.14.1."""
    lib = torch(tmp_path / "site")
    whole = library(lib / "libtorch_cpu.so", module("x", NEW_ERROR), needs=(lib / "libc10.so",))
    library(lib.parent / "_C.so", module("_C"), needs=(whole,), runpath="$ORIGIN/lib")
    other = library(tmp_path / "other" / "libc10.so", exports("_ZN3c106Device3strEv"))
    right, wrong = Made(tmp_path / "site"), {"LD_PRELOAD": str(other)}
    assert not failing(observed(right))
    (finding,) = failing(observed(replace(right, variables=wrong)))
    assert (finding.check, finding.remedy) == (SYMBOLS, "unset LD_PRELOAD")
    assert finding.subject == "torch/_C.so"
    assert f"{other} does not have it" in finding.message
    code = f"import ctypes; ctypes.CDLL({str(lib.parent / '_C.so')!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **wrong},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"undefined symbol: {NEW_ERROR}" in done.stderr


@needs_compiler
def test_what_cannot_be_preloaded_warns(tmp_path):
    made = replace(RECIPES["R12-right"](tmp_path), variables={"LD_PRELOAD": "libnowhere.so"})
    (finding,) = (f for f in ask(PLACE, observed(made), "sm_120") if f.subject == "LD_PRELOAD")
    assert (finding.status.value, "libnowhere.so" in finding.message) == ("warn", True)


def test_the_copy_of_another_package_is_not_the_environments_own() -> None:
    """Triton's CUPTI beside the one of the toolkit, where PyTorch's wheel of it is gone."""
    other = "triton/backends/nvidia/lib/cupti/libcupti.so.13"
    choice = Choice(
        name="libcupti.so.13",
        path="/usr/local/cuda-13.0/lib/libcupti.so.13",
        how="ld.so.cache",
        opened="torch/_C.so",
        others=(other,),
    )
    (finding, whole) = ask(PLACE, inventory(Linked(looked_at=1, choices=(choice,))), "sm_120")
    assert (finding.status.value, other in finding.message) == ("pass", False)
    assert whole.status is Status.PASS
