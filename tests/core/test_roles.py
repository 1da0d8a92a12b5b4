"""Which files may decide: what a package loads, its optional parts, and files that stand alone."""

from __future__ import annotations

import pytest
from inventories import device_file, environment, scanned

from envcheck.core.cuda import parse_version
from envcheck.core.model import Inventory, Torch
from envcheck.core.roles import Role, roles
from envcheck.core.sm import Sm


def role(inventory: Inventory, path: str, sm: str, driver: str | None = None) -> Role:
    version = None if driver is None else parse_version(driver)
    return roles(inventory, Sm.parse(sm), version)[path]


BNB = [
    device_file("bitsandbytes/libbitsandbytes_cuda124.so", "s80 s89 s90 p90"),
    device_file("bitsandbytes/libbitsandbytes_cuda118.so", "s80 s89 s90"),
    device_file("bitsandbytes/libbitsandbytes_cuda128.so", "s80 s90 s120 p120"),
]


@pytest.mark.parametrize(
    ("cuda", "decides"), [("12.4", "cuda124"), ("12.8", "cuda128"), ("11.8", "cuda118")]
)
def test_of_bitsandbytes_only_the_library_for_torchs_cuda_decides(cuda: str, decides: str) -> None:
    inventory = environment(*BNB, torch=Torch(version="2.8.0", cuda=cuda))
    found = roles(inventory, Sm(120), None)
    assert [p for p, r in found.items() if r.required] == [
        f"bitsandbytes/libbitsandbytes_{decides}.so"
    ]
    assert all(r.loaded is r.required for r in found.values())
    assert all(bool(r.why) is not r.required for r in found.values())


def test_while_the_cuda_version_is_open_one_covered_variant_is_enough() -> None:
    found = roles(scanned(*BNB), Sm(120), None)
    assert {p[-10:-3]: r.required for p, r in found.items()} == {
        "cuda124": True,
        "cuda118": False,
        "cuda128": True,
    }
    assert all(r.alternative for r in found.values())


def test_while_the_cuda_version_is_open_no_covered_variant_is_a_failure_of_all() -> None:
    found = roles(scanned(BNB[1]), Sm(120), None)
    assert all(r.required and not r.why for r in found.values())


def test_variants_of_another_wheel_do_not_answer_for_this_one() -> None:
    old = device_file("a.whl!/bitsandbytes/libbitsandbytes_cuda118.so", "s80")
    new = device_file("b.whl!/bitsandbytes/libbitsandbytes_cuda128.so", "s120")
    assert role(scanned(old, new), old.path, "sm_120").required


def test_a_file_that_stands_alone_decides() -> None:
    alone = device_file("x/flash.so", "s90a")
    assert role(scanned(alone), "x/flash.so", "sm_120").required
    beside = device_file("x/other.so", "s120")
    # A folder of files is no package: nobody says which of them a job loads.
    assert role(scanned(alone, beside), "x/flash.so", "sm_120").required


@pytest.mark.parametrize("prefix", ["", "w.whl!/"])
def test_suffix_only_part_of_a_package_that_runs_is_optional(prefix: str) -> None:
    part = device_file(f"{prefix}pkg/_C_hopper.so", "s90a")
    core = device_file(f"{prefix}pkg/sub/_C.so", "s80 s120")
    inventory = scanned(part, core) if prefix else environment(part, core)
    found = role(inventory, part.path, "sm_120")
    assert (found.required, found.loaded) == (False, True)
    assert "optional" in found.why
    # On the card that it is for it is no option but code.
    assert role(inventory, part.path, "sm_90").required
    assert role(inventory, core.path, "sm_120").required


def test_suffix_only_part_decides_where_nothing_else_of_its_package_runs() -> None:
    part, other = device_file("pkg/_C.so", "s90a"), device_file("other/_C.so", "s120")
    assert role(environment(part, other), "pkg/_C.so", "sm_120").required


def test_portable_code_for_other_cards_is_never_optional() -> None:
    part, core = device_file("pkg/_A.so", "s90"), device_file("pkg/_B.so", "s120")
    assert role(environment(part, core), "pkg/_A.so", "sm_120").required
    mixed = device_file("pkg/_A.so", "s90 s90a")
    assert role(environment(mixed, core), "pkg/_A.so", "sm_120").required


def test_a_file_without_usable_code_is_not_taken_for_an_option() -> None:
    lto, core = device_file("pkg/_A.so", "l90"), device_file("pkg/_B.so", "s120")
    assert role(environment(lto, core), "pkg/_A.so", "sm_120").required


def test_parts_known_to_be_for_newer_cards_are_optional_by_name() -> None:
    part = device_file("torchao/_C_mxfp8.abi3.so", "s100 p120")
    assert not role(environment(part), part.path, "sm_89").required
    assert role(environment(part), part.path, "sm_100").required
    assert role(scanned(part), part.path, "sm_89").required


def test_loose_kernels_of_an_environment_never_decide_but_given_files_do() -> None:
    loose = device_file("pkg/kernels/k_sm90.cubin", "s90a", form="cubin")
    assert not role(environment(loose), loose.path, "sm_120").required
    assert not role(environment(loose), loose.path, "sm_90").required
    assert role(scanned(loose), loose.path, "sm_120").required


def test_a_loose_kernel_for_another_card_does_not_decide_over_the_wheel_it_is_in() -> None:
    loose = device_file("pkg.whl!/pkg/k_sm90.cubin", "s90a", form="cubin")
    assert not role(scanned(loose), loose.path, "sm_120").required
    assert role(scanned(loose), loose.path, "sm_90").required


def test_a_driver_decides_whether_a_file_is_covered() -> None:
    late = device_file("bitsandbytes/libbitsandbytes_cuda128.so", "p90:9.1")
    early = device_file("bitsandbytes/libbitsandbytes_cuda118.so", "p90:7.8")
    inventory = scanned(late, early)
    assert role(inventory, late.path, "sm_120", "580.65.06").required is False
    assert role(inventory, late.path, "sm_120", "595.45.04").required is True


def test_skipped_and_broken_files_have_no_role() -> None:
    from envcheck.core.device_file import DeviceFile

    files = (
        DeviceFile(path="a", format="other", size=0, skipped="x"),
        DeviceFile(path="b", format="other", size=0, problem="y"),
    )
    assert roles(scanned(*files), Sm(90), None) == {}
