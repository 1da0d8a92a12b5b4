"""The table of PyTorch releases, and the command that it recommends."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from envcheck.core.dispatching import dispatches
from envcheck.core.sm import Sm
from envcheck.core.torch_releases import RELEASES, install_command


def test_releases_rise() -> None:
    versions = [Version(r.version) for r in RELEASES]
    assert versions == sorted(set(versions))
    assert [r.sms for r in RELEASES] == [tuple(sorted(r.sms)) for r in RELEASES]


# RELEASE.md of PyTorch: 2.8 is the first on PyPI with Blackwell, 2.11 the first without Volta;
# Maxwell and Pascal were dropped with 2.8 (CUDA 12.8).
@pytest.mark.parametrize(
    ("sm", "fits", "not_fits"),
    [
        ("sm_120", "2.8.0", "2.7.1"),
        ("sm_121", "2.15.0", "2.6.0"),
        ("sm_100", "2.8.0", "2.7.1"),
        ("sm_61", "2.7.1", "2.8.0"),
        ("sm_70", "2.10.0", "2.11.0"),
        ("sm_89", "2.4.1", "1.0.0"),
        ("sm_75", "2.15.0", "1.0.0"),
    ],
)
def test_the_command_takes_releases_with_code_and_no_other(
    sm: str, fits: str, not_fits: str
) -> None:
    command = install_command(Sm.parse(sm))
    assert command.startswith("pip install --upgrade 'torch")
    requirement = Requirement(command.split("'")[1])
    assert requirement.name == "torch"
    assert requirement.specifier.contains(fits)
    known = {r.version for r in RELEASES}
    if not_fits in known:
        assert not requirement.specifier.contains(not_fits)


@pytest.mark.parametrize("sm", ["sm_87", "sm_110", "sm_130"])
def test_no_command_for_a_card_that_no_wheel_serves(sm: str) -> None:
    assert install_command(Sm.parse(sm)) == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("nvidia/cublas/lib/libcublasLt.so.12", True),
        ("x.whl!/nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9", True),
        ("nvidia/nccl/lib/libnccl.so.2", True),
        ("nvidia/cusolver/lib/libcusolverMg.so.12", True),
        ("pkg.libs/libcusparse-1a2b3c4d.so.12.5.4", True),
        ("lib/libcublas_static.a", True),
        ("lib/libnppial.so.12", True),
        ("lib/libnvinfer_builder_resource.so.10", True),
        ("torch/lib/libtorch_cuda.so", False),
        ("libcudnnish/_C.so", False),
        ("pkg/libmycublas.so", False),
        ("pkg/libcurandom_forest.so", False),
    ],
)
def test_libraries_of_nvidia_choose_among_kernels_themselves(path: str, *, expected: bool) -> None:
    assert dispatches(path) is expected
