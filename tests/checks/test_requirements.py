"""Requirements and PyTorch's family, on packages as an installer leaves them (recipe R18)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import packages
import pytest
from data.dist_info import install

from envcheck.checks.pins import pins
from envcheck.core.model import Torch
from envcheck.core.torch_family import Local, local
from envcheck.guest import distributions, installed

CHECK, FAMILY = "requirements-are-installed", "torch-family-matches"
CODE = {"x/_C.so": b"code"}


def test_a_pin_that_the_installed_torch_does_not_meet_fails(tmp_path: Path) -> None:
    """R18: METADATA pinning torch==2.4 beside torch 2.11."""
    install(tmp_path, "torch", "2.11.0")
    install(tmp_path, "flash-thing", "1.2", requires=("torch==2.4",))
    (finding,) = packages.ask(CHECK, tmp_path)
    assert packages.told([finding]) == [
        ("fail", "flash-thing 1.2", "requires torch==2.4, but torch 2.11.0 is installed")
    ]
    assert finding.remedy.startswith("pip install 'torch==2.4'")


@pytest.mark.parametrize(
    ("requires", "files", "status"),
    [
        ("torch<2.9", CODE, "fail"),  # compiled code for an older one
        ("torch<2.9", {}, "warn"),  # Python alone often works
        ("torch>=2.8", CODE, "pass"),
        ("torch (==2.11.0)", CODE, "pass"),  # as older metadata writes it
        ("torch==2.11.0+cu128", CODE, "pass"),
        ("torch==2.11.0+cu126", CODE, "fail"),
        ("torch==2.4; python_version < '3.11'", CODE, "pass"),
        ("torch==2.4; python_version >= '3.11'", CODE, "fail"),
        ("torch==2.4; platform_machine == 'aarch64'", CODE, "pass"),
        ("torch==2.4; sys_platform == 'win32'", CODE, "pass"),
        ("torch==2.4; extra == 'old'", CODE, "pass"),
        ("torch==2.4; platform_release > '99'", CODE, "pass"),
        ("not a requirement ==", CODE, "pass"),
        ("absent-thing", CODE, "warn"),
        ("absent-thing; extra == 'all'", CODE, "pass"),
        ("torch @ https://example.org/torch.whl", CODE, "pass"),
        ("Torch>=2", {}, "pass"),
    ],
)
def test_each_form_of_requirement(
    tmp_path: Path, requires: str, files: dict[str, bytes], status: str
) -> None:
    install(tmp_path, "torch", "2.11.0+cu128")
    install(tmp_path, "x", requires=(requires,), files=files)
    assert [f.status.value for f in packages.ask(CHECK, tmp_path)] == [status]


@pytest.mark.parametrize(
    ("version", "variables", "status"),
    [
        # RuntimeError of torch.backends.cudnn, seen with 9.12.0.46 under torch 2.14.1.
        ("9.12.0.46", {}, "fail"),
        ("9.23.9.1", {}, "fail"),
        ("8.30.0.1", {}, "fail"),
        ("10.30.0.1", {}, "fail"),
        ("9.24.0.40", {}, "warn"),
        ("9.28.1.4", {}, "warn"),
        ("9.12.0.46", {"PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": "1"}, "warn"),
        ("9.12.0.46", {"PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": "0"}, "fail"),
    ],
)
def test_a_cudnn_that_torch_refuses_fails(
    tmp_path: Path, version: str, variables: dict[str, str], status: str
) -> None:
    pin = 'nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"'
    install(tmp_path, "torch", "2.14.1", requires=(pin,))
    install(tmp_path, "nvidia-cudnn-cu13", version)
    (finding,) = packages.ask(CHECK, tmp_path, variables=variables)
    assert finding.status.value == status
    assert ("refuses it at the first RNN" in finding.message) == (status == "fail")
    assert finding.remedy.startswith("pip install 'nvidia-cudnn-cu13==9.24.0.43', or")


@pytest.mark.parametrize(
    ("name", "requires", "other", "version", "status"),
    [
        # RuntimeError and ImportError at `import`, tried with these releases.
        ("jax", "jaxlib<=0.10.2,>=0.10.2", "jaxlib", "0.9.0", "fail"),
        ("transformers", "tokenizers<=0.23.0,>=0.22.0", "tokenizers", "0.19.1", "fail"),
        ("transformers", "tokenizers<=0.23.0,>=0.22.0", "tokenizers", "0.22.1", "pass"),
        ("pandas", "numpy>=2.0.2", "numpy", "1.26.0", "fail"),
        ("pandas", "python-dateutil>=2.9.0", "python-dateutil", "2.6.0", "warn"),
        ("numba", "numpy<2.3,>=1.24", "numpy", "2.4.0", "fail"),
        ("numba", "llvmlite<0.51,>=0.50.0dev0", "llvmlite", "0.45.0", "fail"),
        # These compile and run: Numba compares with the least release alone.
        ("numba", "llvmlite<0.44,>=0.43.0dev0", "llvmlite", "0.44.0", "warn"),
        ("numba", "llvmlite<0.46,>=0.45.0dev0", "llvmlite", "0.46.0", "warn"),
        ("matplotlib", "pyparsing<3.1,>=2.3.1", "pyparsing", "3.2.5", "warn"),
        ("matplotlib", "numpy>=1.25", "numpy", "1.24.4", "fail"),
        ("matplotlib", "pyparsing>=3", "pyparsing", "2.4.7", "fail"),
        # A warning of its own, and it goes on.
        ("scipy", "numpy<2.7,>=1.26.4", "numpy", "1.24.4", "warn"),
        ("transformers", "typer-slim", "typer-slim", "0.1", "pass"),
        ("transformers", "typer-slim>=1", "typer-slim", "0.1", "warn"),
    ],
)
def test_what_a_package_refuses_when_it_is_imported_fails(
    tmp_path: Path, name: str, requires: str, other: str, version: str, status: str
) -> None:
    install(tmp_path, name, "5.0.0", requires=(requires,))
    install(tmp_path, other, version)
    (finding,) = packages.ask(CHECK, tmp_path)
    assert finding.status.value == status


def test_compiled_code_for_an_absent_torch_fails(tmp_path: Path) -> None:
    install(tmp_path, "x", requires=("torch",), files=CODE)
    assert packages.told(packages.ask(CHECK, tmp_path)) == [
        ("fail", "x 1.0", "requires torch, which is not installed")
    ]


def test_what_one_package_misses_is_told_at_once(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6")
    install(tmp_path, "x", requires=("one>=1", "two", "numpy<2"))
    missing, other = packages.ask(CHECK, tmp_path)
    assert packages.told([missing, other]) == [
        ("warn", "x 1.0", "requires one>=1, two, which are not installed"),
        ("warn", "x 1.0", "requires numpy<2, but numpy 2.4.6 is installed"),
    ]
    assert missing.remedy == "pip install 'one>=1' 'two'"


def test_a_build_from_source_is_the_release_it_becomes(tmp_path: Path) -> None:
    """PyTorch in NVIDIA's images says 2.6.0a0+ecf3bae40a.nv25.01."""
    install(tmp_path, "torch", "2.6.0a0+ecf3bae40a.nv25.01")
    install(tmp_path, "x", requires=("torch>=2.6",), files=CODE)
    assert [f.status.value for f in packages.ask(CHECK, tmp_path)] == ["pass"]


def test_the_first_folder_counts(tmp_path: Path) -> None:
    install(tmp_path / "user", "torch", "2.6.0")
    install(tmp_path / "system", "torch", "2.8.0")
    install(tmp_path / "system", "x", requires=("torch==2.8.0",), files=CODE)
    (finding,) = packages.ask(CHECK, tmp_path / "user", tmp_path / "system")
    assert finding.message == "requires torch==2.8.0, but torch 2.6.0 is installed"


def test_it_agrees_with_pip_check_on_this_very_environment() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check", "--disable-pip-version-check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "No module named pip" in done.stderr:
        pytest.skip("no pip here")
    lines = [s for s in done.stdout.splitlines() if " which is not " in s or ", but you" in s]
    folders = [p for p in json.loads(_ask("import sys, json; print(json.dumps(sys.path))")) if p]
    found = installed.read([f for f in folders if "site-packages" in f])
    assert len([pin for pin in pins(found) if not pin.met]) == len(lines)


def _ask(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


# PyTorch's family. The pins are those of the published wheels of these versions.


def test_torchvision_of_another_release_fails(tmp_path: Path) -> None:
    """pytorch/vision#9174; torchvision 0.19.1 says `torch (==2.4.1)`."""
    install(tmp_path, "torch", "2.8.0")
    files = {"torchvision/_C.so": b"code"}
    install(tmp_path, "torchvision", "0.19.1", requires=("torch (==2.4.1)",), files=files)
    assert packages.told(packages.ask(FAMILY, tmp_path)) == [
        ("fail", "torchvision 0.19.1", "made for torch==2.4.1, but torch 2.8.0 is installed")
    ]
    # Told once.
    assert [f.status.value for f in packages.ask(CHECK, tmp_path)] == ["pass"]


@pytest.mark.parametrize(
    ("name", "version", "requires", "cuda", "status"),
    [
        ("torchvision", "0.29.1", "torch (>=2.14.0)", "13.0", "pass"),
        ("torchaudio", "2.11.1", "torch>=2.11", "13.0", "pass"),
        ("torchaudio", "2.10.0", "torch==2.10.0", "13.0", "fail"),
        ("torchvision", "0.29.1+cu130", "torch", "13.0", "pass"),
        ("torchvision", "0.29.1+cu132", "torch", "13.0", "pass"),  # one major: it loads
        ("torchvision", "0.29.1+cu126", "torch", "13.0", "fail"),
        ("torchvision", "0.29.1+cpu", "torch", "13.0", "warn"),
        ("torchvision", "0.29.1+cu126", "torch", None, "fail"),
        ("torchvision", "0.29.1+cpu", "torch", None, "pass"),
        ("torchao", "0.13.0", "", "13.0", "warn"),
        ("torchao", "0.18.0", "", "13.0", "pass"),
        ("flash-attn", "2.8.3+cu12torch2.8cxx11abitrue", "torch", "12.8", "fail"),
        ("flash-attn", "2.8.3+cu13torch2.14cxx11abitrue", "torch", "13.0", "pass"),
        ("flash-attn", "2.8.3+cu13torch2.14cxx11abifalse", "torch", "13.0", "fail"),
        ("torch-scatter", "2.1.2+pt26cu124", "", "13.0", "fail"),
        ("torch-scatter", "2.1.2+pt214cu130", "", "13.0", "pass"),
    ],
)
def test_each_member_against_torch_2_14(
    tmp_path: Path, name: str, version: str, requires: str, cuda: str | None, status: str
) -> None:
    install(tmp_path, "torch", "2.14.1")
    needs = tuple(filter(None, (requires,)))
    install(tmp_path, name, version, requires=needs, files={f"{name}/_C.so": b"code"})
    torch = Torch(version="2.14.1", cuda=cuda, cxx11_abi=True)
    (finding,) = packages.ask(FAMILY, tmp_path, torch=torch)
    assert finding.status.value == status, finding.message


def test_pure_python_members_warn(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.14.1")
    install(tmp_path, "torchdata", "0.11.0", requires=("torch<2.9",))
    assert [f.status.value for f in packages.ask(FAMILY, tmp_path)] == ["warn"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.8.0+cu128", Local(cuda="12.8")),
        ("2.1.0+cu118", Local(cuda="11.8")),
        ("2.8.0+cpu", Local(cuda="cpu")),
        ("2.5.0+rocm6.2", Local(cuda="rocm")),
        ("2.7.4.post1+cu12torch2.5cxx11abiFALSE", Local("12", "2.5", cxx11_abi=False)),
        ("2.1.2+pt26cu124", Local("12.4", "2.6")),
        ("2.6.0a0+ecf3bae40a.nv25.01", Local()),
        ("1.0+cute3", Local()),
        ("1.0", Local()),
        ("+", Local()),
    ],
)
def test_local_labels_are_read(version: str, expected: Local) -> None:
    assert local(version) == expected


def test_without_packages_or_torch_there_is_nothing_to_judge(tmp_path: Path) -> None:
    install(tmp_path, "torchvision", "0.19.1")
    assert [f.status.value for f in packages.ask(FAMILY, tmp_path)] == ["skip"]
    tmp_path.joinpath("none").mkdir()
    assert [f.status.value for f in packages.ask(CHECK, tmp_path / "none")] == ["skip"]


GARBAGE = {
    "missing": None,
    "empty": b"",
    "zeros": b"\0" * 300,
    "binary": bytes(range(128, 256)) * 9,
    "no name": b"Metadata-Version: 2.1\nVersion: 1.0\nRequires-Dist: torch\n",
    "no version": b"Metadata-Version: 2.1\nName: x\nRequires-Dist: torch\n",
    "cut at once": b"Metadata-Ver",
    "no name that may be": b"Name: \xff\nVersion: 1.0\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_metadata_that_tells_nothing_is_named_and_is_no_success(tmp_path: Path, name: str) -> None:
    """Its requirements would else be met, all none of them."""
    info = install(tmp_path, "x", requires=("torch==2.4.1",), files={"x/_C.so": b"1"})
    install(tmp_path, "y", requires=("x",))
    content = GARBAGE[name]
    (info / "METADATA").unlink()
    if content is not None:
        (info / "METADATA").write_bytes(content)
    found = {f.subject: f for f in packages.ask(CHECK, tmp_path)}
    finding = found["x-1.0.dist-info"]
    assert finding.status.value == "error"
    assert finding.required
    assert finding.message.startswith("what x requires cannot be judged: METADATA ")
    assert finding.remedy == "pip install --force-reinstall --no-deps 'x==1.0'"


def test_what_a_removal_left_behind_is_named_and_decides_nothing(tmp_path: Path) -> None:
    """As a folder with a licence alone, which pip does not take for an installation."""
    install(tmp_path, "y")
    (tmp_path / "x-1.0.dist-info" / "licenses").mkdir(parents=True)
    found = {f.subject: f.status.value for f in packages.ask(CHECK, tmp_path)}
    assert found["x-1.0.dist-info"] == "warn"


def test_an_author_in_another_encoding_is_no_fault(tmp_path: Path) -> None:
    info = install(tmp_path, "torchaudio", "2.8.0", files={"x/_C.so": b"1"})
    install(tmp_path, "torch", "2.14.1")
    head = "Metadata-Version: 2.1\nName: torchaudio\nVersion: 2.8.0\nAuthor: Jörg\n"
    (info / "METADATA").write_bytes(
        f"{head}Requires-Dist: torch (==2.8.0)\n\nré\n".encode("latin-1")
    )
    assert [f.status.value for f in packages.ask(CHECK, tmp_path)] == ["pass"]
    (found,) = (d for d in distributions.read_all([str(tmp_path)]) if d.name == "torchaudio")
    assert (found.version, found.requires) == ("2.8.0", ("torch (==2.8.0)",))


def test_requirements_that_were_cut_off_are_told_by_record(tmp_path: Path) -> None:
    info = install(tmp_path, "x", requires=("torch==2.4.1",))
    whole = (info / "METADATA").read_bytes()
    (info / "METADATA").write_bytes(whole[: whole.index(b"Requires-Dist")])
    (finding,) = packages.ask("files-match-record", tmp_path)
    assert packages.told([finding]) == [
        (
            "warn",
            "x 1.0",
            (
                "x-1.0.dist-info/METADATA: of another size, against its RECORD; what it requires is "
                "read from METADATA as it is"
            ),
        )
    ]
