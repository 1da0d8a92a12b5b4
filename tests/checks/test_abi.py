"""Packages against the Python, the machine, the C library and the NumPy of an environment."""

from __future__ import annotations

from pathlib import Path

import packages
import pytest
from data.dist_info import NUMPY_1, NUMPY_2, install
from packaging import tags as packaging_tags

TAGS, NUMPY = "wheel-tags-fit-interpreter", "numpy-abi-matches"
CODE = {"x/_C.so": b"code"}


@pytest.mark.parametrize(
    ("tag", "status"),
    # `x/_C.so` does not tell by its name, so a wrong tag warns.
    [
        ("cp311-cp311-manylinux_2_28_x86_64", "pass"),
        ("cp311-cp311-manylinux1_x86_64", "pass"),
        ("cp311-cp311-linux_x86_64", "pass"),
        ("cp39-abi3-manylinux_2_24_x86_64", "pass"),
        ("cp311-abi3-manylinux_2_24_x86_64", "pass"),
        ("cp312-abi3-manylinux_2_24_x86_64", "warn"),
        ("py3-none-any", "pass"),
        ("py2.py3-none-any", "pass"),
        ("py39-none-manylinux_2_28_x86_64", "pass"),  # xformers 0.0.35
        ("py311-none-any", "pass"),  # torchrec 1.9.2
        ("py312-none-any", "warn"),
        ("cp310-cp310-manylinux_2_17_x86_64", "warn"),
        ("cp313-cp313t-manylinux_2_17_x86_64", "warn"),
        ("cp311-cp311-manylinux_2_28_aarch64", "warn"),
        ("cp311-cp311-win_amd64", "warn"),
        ("cp311-cp311-macosx_11_0_arm64", "warn"),
        ("cp311-cp311-manylinux_2_39_x86_64", "warn"),
        ("cp311-cp311-musllinux_1_2_x86_64", "warn"),
        ("nonsense", "pass"),
    ],
)
def test_each_tag_against_python_3_11_on_glibc_2_36(tmp_path: Path, tag: str, status: str) -> None:
    install(tmp_path, "x", tags=(tag,), files=CODE)
    (finding,) = packages.ask(TAGS, tmp_path)
    assert finding.status.value == status, finding.message


def test_every_tag_that_packaging_takes_here_passes(tmp_path: Path) -> None:
    import platform
    import sys

    every = [str(tag) for tag in packaging_tags.sys_tags()]
    libc = " ".join(platform.libc_ver())
    for number, tag in enumerate(every):
        install(tmp_path, f"x{number}", tags=(tag,), files={f"x{number}/_C.so": b"code"})
    if sys.implementation.name != "cpython" or not sys.platform.startswith("linux"):
        pytest.skip("tags of other Pythons are not judged")
    found = packages.ask(
        TAGS, tmp_path, python=platform.python_version(), machine=platform.machine(), libc=libc
    )
    assert [f.status.value for f in found] == ["pass"], found[0].message


def test_one_tag_that_fits_is_enough(tmp_path: Path) -> None:
    both = "cp310-abi3-manylinux_2_39_x86_64.manylinux_2_28_x86_64", "cp310-cp310-linux_x86_64"
    install(tmp_path, "x", tags=both, files=CODE)
    assert [f.status.value for f in packages.ask(TAGS, tmp_path)] == ["pass"]


@pytest.mark.parametrize(
    ("path", "tag", "status"),
    [
        ("x/_C.cpython-310-x86_64-linux-gnu.so", "cp310-cp310-linux_x86_64", "fail"),
        ("x/_C.cpython-311-aarch64-linux-gnu.so", "cp311-cp311-linux_aarch64", "fail"),
        ("x/_C.cpython-311-x86_64-linux-gnu.so", "cp311-cp311-linux_x86_64", "pass"),
        # decord 0.6.0: py3-none in its name, this inside, and it runs.
        ("decord/libdecord.so", "cp36-cp36m-manylinux2010_x86_64", "pass"),
        ("x/pure.py", "py2-none-any", "pass"),  # as Debian packs blinker
    ],
)
def test_files_tell_more_than_tags(tmp_path: Path, path: str, tag: str, status: str) -> None:
    install(tmp_path, "x", tags=(tag,), files={path: b"code"})
    assert [f.status.value for f in packages.ask(TAGS, tmp_path)] == [status]


@pytest.mark.parametrize(
    ("wanted", "status"),
    [(">=3.9", "pass"), (">=3.12", "warn"), ("<4,>=3.8", "pass"), ("rubbish", "pass")],
)
def test_requires_python(tmp_path: Path, wanted: str, status: str) -> None:
    install(tmp_path, "x", requires_python=wanted)
    assert [f.status.value for f in packages.ask(TAGS, tmp_path)] == [status]


@pytest.mark.parametrize(
    ("files", "status"),
    [
        (("x/_C.cpython-310-x86_64-linux-gnu.so",), "fail"),
        (("x/_C.cpython-310-x86_64-linux-gnu.so", "x/_C.abi3.so"), "pass"),
        # As torchao 0.18.0 has it, loaded by its path.
        (("x/_C_a.cpython-310-x86_64-linux-gnu.so", "x/_C.abi3.so"), "pass"),
        (("x/libx.so", "x/_C.cpython-310-x86_64-linux-gnu.so"), "fail"),
        (("x/_C.cpython-311-x86_64-linux-gnu.so",), "pass"),
    ],
)
def test_suffixes_in_a_wheel_whose_tag_fits(
    tmp_path: Path, files: tuple[str, ...], status: str
) -> None:
    install(tmp_path, "x", tags=("py3-none-linux_x86_64",), files=dict.fromkeys(files, b"1"))
    assert [f.status.value for f in packages.ask(TAGS, tmp_path)] == [status]


def test_a_copied_environment_is_told_once_a_package(tmp_path: Path) -> None:
    """An image's cp310 packages in a folder that Python 3.12 reads."""
    files = {"x/_C.cpython-310-x86_64-linux-gnu.so": b"1"}
    install(tmp_path, "x", tags=("cp310-cp310-linux_x86_64",), files=files)
    (finding,) = packages.ask(TAGS, tmp_path, python="3.12.4")
    assert packages.told([finding]) == [
        ("fail", "x 1.0", "built for cp310-cp310-linux_x86_64, but this is Python 3.12.4")
    ]


# NumPy


@pytest.mark.parametrize(
    ("installed", "module", "status"),
    [
        ("2.4.6", NUMPY_1, "fail"),  # hacksider/Deep-Live-Cam#1055
        ("1.26.4", NUMPY_1, "pass"),
        ("2.4.6", NUMPY_2, "pass"),
        ("1.26.4", NUMPY_2, "pass"),  # headers of NumPy 2 take NumPy 1.23
        ("1.22.0", NUMPY_2, "fail"),
        ("1.22.0", NUMPY_2.replace(b"1.23)", b"1.20)"), "pass"),
        ("2.0.1", NUMPY_2.replace(b"1.23)", b"2.1)"), "fail"),
        ("2.4.6", b"pybind11", "skip"),
    ],
)
def test_modules_against_numpy(tmp_path: Path, installed: str, module: bytes, status: str) -> None:
    install(tmp_path, "numpy", installed)
    install(tmp_path, "x", files={"x/_C.so": module})
    assert [f.status.value for f in packages.ask(NUMPY, tmp_path)] == [status]


def test_what_numpy_2_refuses_is_named(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6")
    install(tmp_path, "x", files={"x/_C.so": NUMPY_1, "x/_D.so": NUMPY_1})
    (finding,) = packages.ask(NUMPY, tmp_path)
    assert packages.told([finding]) == [
        ("fail", "x 1.0", "x/_C.so and 1 more: compiled for NumPy 1, which NumPy 2.4.6 refuses")
    ]
    assert finding.remedy.startswith("pip install 'numpy<2'")


def test_torch_goes_on_without_numpy(tmp_path: Path) -> None:
    install(tmp_path, "numpy", "2.4.6")
    install(tmp_path, "torch", "2.2.0", files={"torch/lib/libtorch_python.so": NUMPY_1})
    assert [f.status.value for f in packages.ask(NUMPY, tmp_path)] == ["warn"]


def test_without_numpy_nothing_is_judged(tmp_path: Path) -> None:
    install(tmp_path, "x", files={"x/_C.so": NUMPY_1})
    assert [f.status.value for f in packages.ask(NUMPY, tmp_path)] == ["skip"]
