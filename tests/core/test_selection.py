"""Which of a package's libraries is loaded, as the package's own loader does it."""

from __future__ import annotations

import pytest

from envcheck.core.selection import bitsandbytes_pick, choices, is_optional
from envcheck.core.sm import Sm

# The libraries of bitsandbytes 0.50.2.
BNB = {(11, 8), (12, 1), (12, 4), (12, 6), (12, 8), (13, 0), (13, 2)}


def bnb(*versions: str, root: str = "bitsandbytes") -> list[str]:
    return [f"{root}/libbitsandbytes_cuda{v}.so" for v in versions]


def loaded(paths: list[str], sm: str, cuda: str | None = None, **variables: str) -> list[str]:
    found = choices(paths, Sm.parse(sm), cuda, variables)
    assert set(found) <= set(paths)
    return [path for path, choice in found.items() if choice.loaded]


# bitsandbytes/cextension.py: exact; else the highest below of that major; else the lowest above.
@pytest.mark.parametrize(
    ("cuda", "picked"),
    [
        ((12, 8), (12, 8)),
        ((12, 9), (12, 8)),
        ((12, 5), (12, 4)),
        ((12, 0), (12, 1)),
        ((11, 7), (11, 8)),
        ((13, 1), (13, 0)),
        ((13, 9), (13, 2)),
        ((10, 2), None),
        ((14, 0), None),
    ],
)
def test_bitsandbytes_stays_within_its_cuda_major(
    cuda: tuple[int, int], picked: tuple[int, int] | None
) -> None:
    assert bitsandbytes_pick(BNB, cuda) == picked


def test_bitsandbytes_loads_one_library() -> None:
    paths = bnb("118", "124", "128", "130")
    assert loaded(paths, "sm_120", "12.8") == bnb("128")
    assert loaded(paths, "sm_120", "12.6") == bnb("124")
    assert loaded(paths, "sm_120", "14.0") == []


def test_bitsandbytes_without_a_cuda_version_is_an_open_question() -> None:
    found = choices(bnb("118", "128"), Sm(120), None, {})
    assert [c.loaded for c in found.values()] == [None, None]
    assert all("CUDA version of torch" in c.why for c in found.values())


def test_the_variable_of_bitsandbytes_overrides_torch() -> None:
    paths = bnb("118", "124", "128")
    assert loaded(paths, "sm_120", "12.8", BNB_CUDA_VERSION="118") == bnb("118")
    assert loaded(paths, "sm_120", None, BNB_CUDA_VERSION="124") == bnb("124")
    assert loaded(paths, "sm_120", "12.8", BNB_CUDA_VERSION="130") == []


# cextension.py of 0.50.2 raises for anything but digits, and falls back from nothing.
@pytest.mark.parametrize("value", ["", "12", "12.8", "auto", "128x", "\uff11\uff12\uff18"])
def test_a_variable_that_the_loader_refuses_loads_nothing(value: str) -> None:
    found = choices(bnb("118", "128"), Sm(120), "12.8", {"BNB_CUDA_VERSION": value})
    assert [c.loaded for c in found.values()] == [False, False]
    assert all(f"BNB_CUDA_VERSION={value} is set" in c.why for c in found.values())


def test_libraries_without_cublaslt_are_for_cards_below_the_targets() -> None:
    paths = [*bnb("118"), "bitsandbytes/libbitsandbytes_cuda118_nocublaslt.so"]
    assert loaded(paths, "sm_75", "11.8") == bnb("118")


def test_libraries_for_other_vendors_and_the_cpu_are_no_variants() -> None:
    paths = [
        "bitsandbytes/libbitsandbytes_cpu.so",
        "bitsandbytes/libbitsandbytes_rocm62.so",
        "bitsandbytes/libbitsandbytes_xpu.so",
        "notbitsandbytes/libbitsandbytes_cuda128.so",
    ]
    assert choices(paths, Sm(90), "12.8", {}) == {}


def test_each_wheel_has_a_choice_of_its_own() -> None:
    old = bnb("117", "118", root="bitsandbytes-0.41.whl!/bitsandbytes")
    new = bnb("118", "128", root="bitsandbytes-0.50.whl!/bitsandbytes")
    assert loaded(old + new, "sm_90", "11.7") == [old[0], new[0]]


@pytest.mark.parametrize(
    ("sm", "folder"),
    [("sm_90", "sm90"), ("sm_100", "sm100"), ("sm_120", "sm100"), ("sm_89", "sm100")],
)
def test_sgl_kernel_has_one_folder_for_hopper_and_one_for_the_rest(sm: str, folder: str) -> None:
    paths = [f"sgl_kernel/{f}/common_ops.abi3.so" for f in ("sm90", "sm100")]
    assert loaded(paths, sm) == [f"sgl_kernel/{folder}/common_ops.abi3.so"]


@pytest.mark.parametrize(
    ("sm", "number"), [("sm_89", 89), ("sm_86", 86), ("sm_90", 89), ("sm_87", 86), ("sm_120", 89)]
)
def test_tinycudann_takes_the_highest_variant_not_above_the_card(sm: str, number: int) -> None:
    new = [f"tinycudann_bindings/_{n}_C.cpython-311-x86_64-linux-gnu.so" for n in (75, 86, 89)]
    old = [f"tinycudann_bindings_{n}/_C.cpython-310-x86_64-linux-gnu.so" for n in (75, 86, 89)]
    assert loaded(new, sm) == [p for p in new if f"_{number}_" in p]
    assert loaded(old, sm) == [p for p in old if f"_{number}/" in p]


def test_tinycudann_has_nothing_for_a_card_below_all_variants() -> None:
    assert loaded(["tinycudann_bindings/_86_C.so"], "sm_75") == []


def test_optional_parts_are_named_one_by_one() -> None:
    assert is_optional("torchao/_C_mxfp8.abi3.so")
    assert is_optional("w.whl!/torchao/_C_mxfp8.abi3.so")
    assert is_optional("nccl/m2n/lib/cu13/libnccl_m2n.so")
    assert not is_optional("torchao/_C.abi3.so")
    assert not is_optional("mytorchao/_C_mxfp8.abi3.so")
