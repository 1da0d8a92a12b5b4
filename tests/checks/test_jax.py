"""JAX beside its CUDA plugins: what each case comes to was seen with the wheels of 0.10.2.

Its log says `Unable to load cuDNN`, `AssertionError`, `Plugin module does not exist`; JAX goes on with
`[CpuDevice(id=0)]`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import inventories
import packages
import pytest
from data.dist_info import install

from envcheck.core.linking import ByName, Linked, MissingLibrary, Opened
from envcheck.core.model import Finding, Inventory, Torch
from envcheck.core.tools import Nvcc, Tools
from envcheck.guest import installed

CHECK = "jax-has-its-cuda-plugin"
JAX = {"jax": "0.10.2", "jaxlib": "0.10.2"}
HALVES = {"jax-cuda13-plugin": "0.10.2", "jax-cuda13-pjrt": "0.10.2"}
LIBRARIES = {"nvidia-cudnn-cu13": "9.28.1.4", "nvidia-cufft": "12.5.0.14"}
WITH_CUDA = (
    'nvidia-cudnn-cu13<10.0,>=9.12.0.46; sys_platform == "linux" and extra == "with-cuda"',
    'nvidia-cufft>=12.0.0.15; sys_platform == "linux" and extra == "with-cuda"',
    # JAX does not look at it when it starts.
    'nvidia-nccl-cu13>=2.27.7; sys_platform == "linux" and extra == "with-cuda"',
    'nvidia-cuda-runtime>=13; sys_platform == "win32" and extra == "with-cuda"',
)
AGAIN = "pip install 'jax-cuda13-plugin[with-cuda]==0.10.2'"
WHOLE = {**JAX, **HALVES, **LIBRARIES}


def site(folder: Path, there: dict[str, str]) -> Path:
    for name, version in there.items():
        requires = WITH_CUDA if name.endswith("plugin") else ()
        install(folder, name, version, requires=requires)
    return folder


def ask(folder: Path, there: dict[str, str]) -> list[Finding]:
    return packages.ask(CHECK, site(folder, there))


def test_the_extra_that_names_its_libraries_is_a_fact(tmp_path: Path) -> None:
    site(tmp_path, HALVES)
    (plugin,) = (p for p in installed.read([str(tmp_path)]).packages if p.with_cuda)
    assert (plugin.with_cuda, plugin.requires) == (WITH_CUDA, ())


def test_a_whole_one_passes(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, WHOLE)
    assert (finding.status.value, finding.subject) == ("pass", "jaxlib 0.10.2")


@pytest.mark.parametrize(
    ("change", "status", "said", "remedy"),
    [
        ({"jax-cuda13-pjrt": ""}, "fail", "jax-cuda13-pjrt is not installed", AGAIN),
        ({"jax-cuda13-plugin": ""}, "fail", "jax-cuda13-plugin is not installed", AGAIN),
        ({"jax-cuda13-plugin": "0.10.1"}, "fail", "jaxlib 0.10.2 does not use it", AGAIN),
        # The form of a version is not compared, its numbers are.
        ({"jax-cuda13-plugin": "0.10.2.post1"}, "pass", "takes", ""),
        ({"nvidia-cudnn-cu13": ""}, "fail", "nvidia-cudnn-cu13 not installed", AGAIN),
        ({"nvidia-cufft": ""}, "fail", "nvidia-cufft not installed", AGAIN),
        (dict.fromkeys(LIBRARIES, ""), "warn", "none of the libraries", AGAIN),
        ({"nvidia-cudnn-cu13": "9.11.1.2"}, "fail", "XLA refuses a cuDNN older", AGAIN),
        ({"nvidia-cudnn-cu13": "9.12.0.40"}, "warn", "wants nvidia-cudnn-cu13", AGAIN),
        ({"nvidia-cudnn-cu13": "10.0.1"}, "fail", "XLA refuses", AGAIN),
        ({"nvidia-cufft": "11.9.0"}, "warn", "wants nvidia-cufft>=12.0.0.15", AGAIN),
    ],
)
def test_each_mismatch(
    tmp_path: Path, change: dict[str, str], status: str, said: str, remedy: str
) -> None:
    there = {name: version for name, version in {**WHOLE, **change}.items() if version}
    (finding,) = ask(tmp_path, there)
    version = change.get("jax-cuda13-plugin") or "0.10.2"
    expected = remedy if "use it" in said else remedy.replace("0.10.2", version)
    assert (finding.status.value, finding.remedy) == (status, expected)
    assert said in finding.message


def seen(
    folder: Path, there: dict[str, str], *names: ByName, nvcc: Nvcc | None = None
) -> Inventory:
    """Return an environment whose loader was asked for these by its plugin."""
    site(folder, {name: version for name, version in there.items() if name not in HALVES})
    install(folder, "jax-cuda13-pjrt", "0.10.2")
    opener = {"jax_cuda13_plugin/_versions.so": b"code"}
    requires = (*WITH_CUDA, 'nvidia-cuda-nvcc>=13; extra == "with-cuda"')
    install(folder, "jax-cuda13-plugin", "0.10.2", requires=requires, files=opener)
    made = packages.inventory(folder)
    assert made.environment is not None
    environment = replace(made.environment, tools=Tools(nvcc=nvcc))
    lacks = MissingLibrary(name="libnvJitLink.so.13", by="nvidia/cu13/lib/libcusparse.so.12")
    broken = Opened(path=lacks.by, module=False, libraries=(lacks,))
    linked = Linked(looked_at=1, by_name=names, files=(broken,))
    return replace(made, environment=environment, linked=linked)


def by_name(name: str, path: str | None = None) -> ByName:
    return ByName(name=name, opener="jax_cuda13_plugin/_versions.so", path=path)


COMPILER = {"nvidia-cuda-nvcc": "13.3.27"}
HERE = by_name("libcufft.so.12", "nvidia/cu13/lib/libcufft.so.12")
NO_CPU = "what needs it ends while it runs"


@pytest.mark.parametrize(
    ("names", "without", "status", "said"),
    [
        ((HERE,), (), "pass", "takes"),
        # JAX asks the loader: the system's is as good as that of a package.
        (
            (by_name("libcufft.so.12", "/usr/lib/libcufft.so.12"),),
            ("nvidia-cufft",),
            "pass",
            "takes",
        ),
        (
            (by_name("libcudnn.so.9", "/usr/lib/libcudnn.so.9.11.1"),),
            ("nvidia-cudnn-cu13",),
            "fail",
            "/usr/lib/libcudnn.so.9.11.1, and was built with cuDNN 9.12",
        ),
        (
            (by_name("libcudnn.so.9", "/usr/lib/libcudnn.so.9.12.0"),),
            ("nvidia-cudnn-cu13",),
            "pass",
            "takes",
        ),
        # `Unable to load cuSPARSE. Is it installed?`, with its package there.
        ((by_name("libcusparse.so.12"),), (), "fail", "(it needs libnvJitLink.so.13)"),
        # The folder is there, the file in it is not.
        ((by_name("libcufft.so.12"),), (), "fail", "does not find libcufft.so.12, asked for first"),
        ((HERE, by_name("libnccl.so.2")), (), "warn", f"libnccl.so.2: {NO_CPU}"),
        ((HERE, by_name("libcusolver.so.12")), (), "warn", f"libcusolver.so.12: {NO_CPU}"),
    ],
)
def test_what_the_plugin_asks_the_loader_for(
    tmp_path: Path, names: tuple[ByName, ...], without: tuple[str, ...], status: str, said: str
) -> None:
    there = {n: v for n, v in {**WHOLE, **COMPILER}.items() if n not in without}
    made = seen(tmp_path, there, *names)
    (finding,) = inventories.ask(CHECK, made, "sm_120")
    assert (finding.status.value, finding.remedy) == (status, AGAIN if status != "pass" else "")
    assert said in finding.message
    # It is judged once.
    (other,) = inventories.ask("libraries-opened-by-name-are-there", made, "sm_120")
    assert other.status.value == "skip"
    (place,) = inventories.ask("libraries-load-from-one-place", made, "sm_120")
    assert place.status.value == "pass"


@pytest.mark.parametrize(
    ("home", "status", "said"),
    [
        # `No PTX compilation provider is available`, at x + 1.
        (None, "fail", ", and there is no other toolkit"),
        ("/usr/local/cuda", "warn", "left to the toolkit of the system, /usr/local/cuda"),
    ],
)
def test_without_its_compiler_it_needs_a_toolkit(
    tmp_path: Path, home: str | None, status: str, said: str
) -> None:
    nvcc = Nvcc(origin="PATH", home=home, path=f"{home}/bin/nvcc") if home else None
    (finding,) = inventories.ask(CHECK, seen(tmp_path, WHOLE, HERE, nvcc=nvcc), "sm_120")
    assert (finding.status.value, finding.remedy) == (status, AGAIN)
    assert said in finding.message
    assert "nvidia-cuda-nvcc not installed" in finding.message


@pytest.mark.parametrize(
    ("there", "variables", "said"),
    [
        (WHOLE, {"JAX_PLATFORMS": ""}, {("pass", "")}),
        (WHOLE, {"JAX_PLATFORMS": "cuda,cpu", "JAX_PLATFORM_NAME": "GPU"}, {("pass", "")}),
        # `[CpuDevice(id=0)]`, with a card and without a word of it.
        (WHOLE, {"JAX_PLATFORMS": "cpu"}, {("warn", "unset JAX_PLATFORMS")}),
        (WHOLE, {"JAX_PLATFORMS": "cpu,cuda"}, {("warn", "unset JAX_PLATFORMS")}),
        (WHOLE, {"JAX_PLATFORM_NAME": "cpu"}, {("warn", "unset JAX_PLATFORM_NAME")}),
        # AssertionError at jax.devices().
        (JAX, {"JAX_PLATFORMS": "cuda"}, {("skip", ""), ("fail", "unset JAX_PLATFORMS")}),
        (JAX, {"JAX_PLATFORMS": "cpu"}, {("skip", "")}),
        # Where each is a name of what is there.
        ({**JAX, "jax-rocm7-plugin": "0.10.2"}, {"JAX_PLATFORMS": "gpu"}, {("skip", "")}),
        (
            {"jax": "0.4.29", "jaxlib": "0.4.29+cuda12.cudnn91"},
            {"JAX_PLATFORMS": "cuda"},
            {("pass", "")},
        ),
    ],
)
def test_the_variables_that_name_a_backend(
    tmp_path: Path, there: dict[str, str], variables: dict[str, str], said: set[tuple[str, str]]
) -> None:
    found = packages.ask(CHECK, site(tmp_path, there), variables=variables)
    assert {(f.status.value, f.remedy) for f in found} == said


def test_a_jaxlib_that_does_not_compare_takes_any_plugin(tmp_path: Path) -> None:
    there = {**WHOLE, "jax": "0.5.0", "jaxlib": "0.5.0"}
    assert [f.status.value for f in ask(tmp_path, there)] == ["pass"]


def test_two_plugins_are_a_matter_of_chance(tmp_path: Path) -> None:
    other = {"jax-cuda12-plugin": "0.10.2", "jax-cuda12-pjrt": "0.10.2"}
    (finding,) = ask(tmp_path, {**WHOLE, **other})
    assert (finding.status.value, finding.remedy) == (
        "warn",
        "pip uninstall -y jax-cuda12-pjrt jax-cuda12-plugin",
    )


@pytest.mark.parametrize(
    ("others", "status", "remedy"),
    [
        # Nothing here is for a card: a JAX for the CPU.
        ({}, "skip", ""),
        # Only JAX could have used these.
        ({"nvidia-cudnn-cu13": "9.28.1.4"}, "fail", "pip install 'jax[cuda13]==0.10.2'"),
        # PyTorch uses them, and JAX beside it may be meant for the CPU.
        (
            {"nvidia-cudnn-cu13": "9.28.1.4", "torch": "2.14.1"},
            "warn",
            "pip install 'jax[cuda13]==0.10.2'",
        ),
    ],
)
def test_without_a_plugin_the_rest_of_the_environment_tells(
    tmp_path: Path, others: dict[str, str], status: str, remedy: str
) -> None:
    site(tmp_path, JAX)
    paths = {name: f"{name.replace('-', '/')}/lib.so" for name in others}
    for name, version in others.items():
        install(tmp_path, name, version, files={paths[name]: b"code"})
    torch = Torch(version="2.14.1", cuda="13.0") if "torch" in others else None
    made = packages.inventory(tmp_path, torch=torch)
    files = tuple(inventories.device_file(path, "s120") for path in paths.values())
    (finding,) = inventories.ask(CHECK, replace(made, files=files), "sm_120")
    assert (finding.status.value, finding.remedy) == (status, remedy)


def test_without_jax_there_is_nothing_to_say(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, {**HALVES, "numpy": "2.4.6"})
    assert (finding.status.value, finding.required) == ("skip", False)


def test_a_jaxlib_that_holds_cuda_itself_needs_no_plugin(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, {"jax": "0.4.29", "jaxlib": "0.4.29+cuda12.cudnn91"})
    assert finding.status.value == "pass"
