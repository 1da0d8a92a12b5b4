"""Commands that bring back a library or a release, from facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import ask, environment, question
from pip_commands import commands as parsed

from envcheck.checks import commands, torch_family_commands
from envcheck.core.distribution import Distribution
from envcheck.core.installed import Installed, Interpreter, Package
from envcheck.core.linking import Linked, MissingLibrary, Opened
from envcheck.core.model import Inventory, Torch

# As torch 2.14.1 of PyPI says, and torch 2.8.0 of CUDA 12.
CU13 = (
    'cuda-toolkit[cublas,cudart,cupti,nvrtc]==13.0.3; platform_system == "Linux"',
    'nvidia-nccl-cu13==2.30.7; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"',
)
CU12 = (
    'nvidia-cuda-cupti-cu12==12.8.90; platform_system == "Linux"',
    'nvidia-nccl-cu12==2.27.3; platform_system == "Linux"',
)
MARKERS = {
    "platform_system": "Linux", "python_version": "3.11", "python_full_version": "3.11.7",
    "sys_platform": "linux", "platform_machine": "x86_64", "os_name": "posix",
    "implementation_name": "cpython", "implementation_version": "3.11.7",
    "platform_python_implementation": "CPython",
}  # fmt: skip


def package(name: str, version: str, *requires: str) -> Package:
    return Package(
        name=name, version=version, info=f"{name}-{version}.dist-info", requires=requires
    )


def inventory(*packages: Package, cuda: str | None = "13.0", **more: object) -> Inventory:
    made = environment(torch=Torch(version="2.14.1", cuda=cuda))
    assert made.environment is not None
    held = Installed(packages=packages, interpreter=Interpreter(markers=MARKERS, suffixes=(".so",)))
    return replace(made, environment=replace(made.environment, installed=held), **more)


@pytest.mark.parametrize(
    ("library", "packages", "command"),
    [
        ("libnccl.so.2", (package("torch", "2.14.1", *CU13),), "'nvidia-nccl-cu13==2.30.7'"),
        ("libnccl.so.2", (package("torch", "2.8.0", *CU12),), "'nvidia-nccl-cu12==2.27.3'"),
        (
            "libcupti.so.12",
            (package("torch", "2.8.0", *CU12),),
            "'nvidia-cuda-cupti-cu12==12.8.90'",
        ),
        # Its metadata is still there, and pip takes it for installed.
        (
            "libcupti.so.13",
            (package("torch", "2.14.1", *CU13), package("nvidia-cuda-cupti", "13.0.85")),
            "'nvidia-cuda-cupti==13.0.85'",
        ),
        ("libcufile.so.0", (package("torch", "2.14.1", *CU13),), ""),
        ("libmpi.so.40", (package("torch", "2.14.1", *CU13),), ""),
        ("libnccl.so.2", (), ""),
    ],
)
def test_pytorch_pins_what_brings_its_libraries(
    library: str, packages: tuple[Package, ...], command: str
) -> None:
    said = commands.for_torchs_library(library, question(inventory(*packages), "sm_90"))
    assert said == (f"pip install --force-reinstall --no-deps {command}" if command else "")


def test_what_an_extra_brought_is_asked_for_by_the_extra() -> None:
    facts = inventory(package("torch", "2.14.1", *CU13))
    said = commands.for_torchs_library("libcupti.so.13", question(facts, "sm_90"))
    assert said == "pip install 'cuda-toolkit[cupti]==13.0.3'"


@pytest.mark.parametrize("library", ["libcupti.so.13", "libnccl.so.2"])
def test_a_library_that_pytorch_misses_is_brought_by_name(library: str) -> None:
    opened = Opened(
        path="torch/_C.so", module=True, imported=True, torch=True,
        libraries=(MissingLibrary(name=library, by="torch/lib/libtorch_cpu.so"),),
    )  # fmt: skip
    facts = inventory(
        package("torch", "2.14.1", *CU13), linked=Linked(files=(opened,), looked_at=1)
    )
    assert facts.environment is not None
    owned = ("torch/_C.so", "torch/lib/libtorch_cpu.so")
    torch = Distribution(name="torch", version="2.14.1", record_digest=None, files=owned)
    facts = replace(facts, environment=replace(facts.environment, distributions=(torch,)))
    (finding,) = (
        f for f in ask("extension-symbols-resolve", facts, "sm_90") if f.status.value == "fail"
    )
    assert library in finding.message
    (words,) = parsed(finding.remedy)
    assert words[-1] in ("cuda-toolkit[cupti]==13.0.3", "nvidia-nccl-cu13==2.30.7")


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("2.14.1", "pip install --force-reinstall --no-deps 'torch==2.14.1'"),
        ("unknown", "pip install --force-reinstall --no-deps torch"),
        (
            "2.14.1+cu130",
            "pip install --force-reinstall --no-deps 'torch==2.14.1+cu130' --index-url https://download.pytorch.org/whl/cu130",
        ),
        ("2.6.0a0+ecf3bae40a.nv25.01", "install torch 2.6.0a0+ecf3bae40a.nv25.01 again from where"),
    ],
)
def test_a_release_is_installed_again_from_where_it_is(version: str, command: str) -> None:
    assert commands.again_as("torch", version).startswith(command)


@pytest.mark.parametrize(("cuda", "label"), [("13.0", "cu130"), ("12.8", "cu128"), (None, "cpu")])
def test_the_build_of_torchaudio_for_the_cuda_of_torch_is_named(
    cuda: str | None, label: str
) -> None:
    packages = package("torch", "2.11.0"), package("torchaudio", "2.11.0+cu118")
    facts = inventory(*packages, cuda=cuda)
    (finding,) = ask("torch-family-matches", facts, "sm_90")
    assert finding.status.value == "fail"
    assert finding.remedy == (
        "pip install --force-reinstall --no-deps 'torchaudio==2.11.0'"
        f" --index-url https://download.pytorch.org/whl/{label}"
    )


@pytest.mark.parametrize(
    ("torch", "torchao", "remedy"),
    [
        ("2.8.0", "0.12.0", "pip install 'torchao==0.13.0'"),
        ("2.14.1", "0.13.0", "pip install 'torchao>=0.18.0'"),
        ("2.4.1", "0.13.0", "use the torchao that is made for torch 2.4.1: pytorch/ao#2919"),
    ],
)
def test_the_torchao_of_a_torch_is_named_by_its_table(
    torch: str, torchao: str, remedy: str
) -> None:
    (finding,) = ask(
        "torch-family-matches",
        inventory(package("torch", torch), package("torchao", torchao)),
        "sm_90",
    )
    assert finding.remedy.startswith(remedy)


def test_a_release_with_other_digits_is_no_traceback() -> None:
    facts = inventory(package("torch", "2.\u00b2"), package("torchao", "0.18.0"))
    (finding,) = ask("torch-family-matches", facts, "sm_90")
    assert finding.status.value == "warn"


BUILD = "pip install --force-reinstall --no-deps --no-build-isolation --no-binary xformers xformers"


@pytest.mark.parametrize(
    ("name", "version", "cuda", "remedy"),
    [
        # pip resolves it to torchvision 0.29.1, with which nothing fails.
        ("torchvision", "2.14.1", "13.0", "pip install --upgrade torchvision 'torch==2.14.1'"),
        (
            "torchvision",
            "2.8.0+cu126",
            "12.6",
            f"pip install --upgrade torchvision 'torch==2.8.0' --index-url {commands.INDEX}/cu126",
        ),
        # Its wheels need libcudart.so.12: 0.0.35 with torch 2.14.1 fails as 0.0.31 does.
        ("xformers", "2.14.1", "13.0", BUILD),
        ("xformers", "2.7.1", "12.6", "pip install --upgrade xformers 'torch==2.7.1'"),
        ("torchao", "2.14.1", "13.0", "pip install 'torchao>=0.18.0'"),
        ("torchtext", "2.14.1", "13.0", "pip uninstall -y torchtext; "),
    ],
)
def test_a_member_of_the_family_is_brought_for_the_torch_that_is_there(
    name: str, version: str, cuda: str, remedy: str
) -> None:
    made = inventory(package("torch", version)).environment
    assert made is not None
    facts = Torch(version=f"{version.partition('+')[0]}+cu{cuda.replace('.', '')}", cuda=cuda)
    command = torch_family_commands.of_torch(name, replace(made, torch=facts))
    assert command.startswith(remedy)
    assert command == remedy or remedy.endswith("; ")
