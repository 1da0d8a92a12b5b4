"""Readable names of mangled kernels, against c++filt where it is there."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envcheck.guest.kernel_name import function_name

# Mangled as nvcc does it; the second column was read by hand from the Itanium C++ ABI.
NAMES = {
    "probe": "probe",
    "_Z5probePii": "probe",
    "_Z3addIfEvPT_S1_": "add",
    "_ZN6marlin6MarlinILi1ELi2EEEvPKi": "marlin::Marlin",
    "_ZN2at6native29vectorized_elementwise_kernelILi4EEEviT_": (
        "at::native::vectorized_elementwise_kernel"
    ),
    # Internal linkage, and the unnamed namespace that nvcc names after the source file.
    "_ZL5probePii": "probe",
    "_ZN31_GLOBAL__N__4b5f1d6c_4_k_cu_abc6kernelEv": "kernel",
    "_ZN2at4cuda31_GLOBAL__N__4b5f1d6c_4_k_cu_abc4fillEv": "at::cuda::fill",
    "_ZN2at23_INTERNAL_0a1b2c3d_4_k_4fillEv": "at::fill",
}


@pytest.mark.parametrize("mangled", NAMES)
def test_names_are_functions_without_arguments(mangled: str) -> None:
    assert function_name(mangled) == NAMES[mangled]


def test_two_instances_of_one_template_are_one_function() -> None:
    first, second = "_Z4gemmILi80EEvPf", "_Z4gemmILi120EEvPf"
    assert function_name(first) == function_name(second) == "gemm"


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="binutils are not installed")
@pytest.mark.parametrize(
    "mangled", [m for m in NAMES if not {"GLOBAL", "INTERNAL"} & set(m.split("_"))]
)
def test_names_are_those_of_cxxfilt(mangled: str) -> None:
    done = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True)
    bare = done.stdout.strip().split("(")[0].split("<")[0].split(" ")[-1]
    assert function_name(mangled) == bare


@pytest.mark.parametrize(
    "mangled", ["_Z", "_ZN", "_Z99short", "_ZN3abc", "_ZTV3abc", "_Z0", "_ZNK", "_ZN0E", "_Z9" * 50]
)
def test_what_cannot_be_read_is_named_and_never_empty(mangled: str) -> None:
    assert function_name(mangled)


@given(st.text(st.sampled_from("_ZNLKrV0123456789abE"), max_size=40))
def test_any_name_gives_a_name(text: str) -> None:
    assert bool(function_name(text)) is bool(text)
    assert bool(function_name("_Z" + text))


@pytest.mark.parametrize("digits", ["9" * 5000, "\u00b2", "\uff15"])
def test_digits_that_python_cannot_or_should_not_convert_are_no_crash(digits: str) -> None:
    name = f"_Z{digits}probe"
    assert function_name(name)[-5:] in ("probe", "99999")
