"""How a file's containers meet one card, by cases that were worked out by hand."""

from __future__ import annotations

import pytest
from inventories import code, container, device_file

from envcheck.core import coverage
from envcheck.core.coverage import Coverage, of_file
from envcheck.core.cuda import parse_version
from envcheck.core.sm import Sm


def met(
    sm: str, *parts: object, driver: str | None = None, form: str = "shared-object"
) -> Coverage:
    version = None if driver is None else parse_version(driver)
    return of_file(device_file("a.so", *parts, form=form), Sm.parse(sm), version)


@pytest.mark.parametrize(
    ("sm", "codes", "mode", "reason"),
    [
        ("sm_89", "s89", "native", "exact"),
        ("sm_89", "s86", "native", "same-major"),
        ("sm_89", "s80 s86 s90", "native", "same-major"),
        ("sm_90", "s90a", "native", "exact"),
        ("sm_103", "s100f", "native", "family"),
        ("sm_100", "s100f", "native", "exact"),
        ("sm_121", "s120", "native", "same-major"),
        ("sm_120", "s90 p90", "jit", "ptx-jit"),
        ("sm_121", "p120f:8.8", "jit", "ptx-jit"),
        ("sm_120", "s89", "none", "no-code-for-target"),
        ("sm_120", "p121", "none", "no-code-for-target"),
        ("sm_103", "s100a", "none", "arch-specific"),
        ("sm_120", "p90a", "none", "arch-specific"),
        ("sm_120", "s100f p100f", "none", "family-specific"),
        ("sm_89", "s87", "none", "desktop-and-tegra"),
        ("sm_87", "s86", "none", "desktop-and-tegra"),
        ("sm_89", "l89", "none", "lto-ir-only"),
        ("sm_89", "l89 s80", "native", "same-major"),
        # A suffix is not to blame where the plain code would not have run either.
        ("sm_90", "s120a", "none", "no-code-for-target"),
    ],
)
def test_one_container(sm: str, codes: str, mode: str, reason: str) -> None:
    found = met(sm, codes)
    assert (found.mode, found.reason) == (mode, reason)
    assert found.message


def test_a_file_is_covered_by_the_union_of_its_containers() -> None:
    assert met("sm_120", "s89", "s90a", "s120").mode == "native"
    # An arch-specific container beside a generic one is how cuBLAS and cuDNN are made.
    assert met("sm_120", "s80 p80", "s100a").mode == "jit"
    # Exact code speaks for the file, whatever comes first.
    assert met("sm_90", "p80", "s90").reason == "exact"


def test_containers_without_code_and_unread_ones_cover_nothing() -> None:
    stub = container("s120", has_code=False)
    assert met("sm_120", stub, "s89").reason == "no-code-for-target"
    behind = container("s120", section=coverage.UNREAD)
    assert met("sm_120", "s89", behind, form="fatbin").mode == "none"


def test_relocatable_machine_code_runs_where_it_is_exact_and_ptx_where_it_fits() -> None:
    # rdc_link120_rel_s90_s120.so runs on sm_90 (tests/data/truth-extra); a lower minor is not
    # known to be linked.
    def linked(codes: str) -> tuple:
        return "s120", container(codes, section="__nv_relfatbin")

    assert met("sm_90", *linked("s90 s120")).mode == "native"
    assert met("sm_90", *linked("s90a s120")).mode == "native"
    assert met("sm_89", *linked("s86 s120")).mode == "none"
    assert met("sm_89", *linked("s120 p86")).mode == "jit"
    # In an object file the same section is what the linker will take as it is.
    part = container("s86", section="__nv_relfatbin")
    assert met("sm_89", part, form="object").reason == "same-major"


# The choice of an H200: nearest SM, then the first; and no second choice.
@pytest.mark.parametrize(
    ("codes", "driver", "reason"),
    [
        ("p80:8.0 p90:9.1", "580.159.04", "ptx-newer-than-driver"),
        ("p90:9.1 p80:8.0", "580.159.04", "ptx-newer-than-driver"),
        ("p80:9.1 p80:9.0", "580.159.04", "ptx-newer-than-driver"),
        ("p80:9.0 p80:9.1", "580.159.04", "ptx-jit"),
        ("s80 p80:9.1", "580.159.04", "ptx-newer-than-driver"),
        ("s90 p90:9.1", "580.159.04", "exact"),
        ("p120:9.1 p80:8.0", "580.159.04", "ptx-jit"),
        ("p90:7.8", "520.61.05", "ptx-jit"),
        ("p90:7.8", "520.61.04", "ptx-newer-than-driver"),
        ("p80:6.5", "580.159.04", "ptx-older-than-its-target"),
        ("p90a:7.8", "580.159.04", "ptx-older-than-its-target"),
        ("p90a:8.0", "580.159.04", "ptx-jit"),
    ],
)
def test_ptx_is_chosen_as_the_driver_does(codes: str, driver: str, reason: str) -> None:
    assert met("sm_90", codes, driver=driver).reason == reason


def test_without_a_driver_the_least_one_is_part_of_the_answer() -> None:
    assert met("sm_120", "p90:8.4").least_driver == (550, 54, 14)
    assert met("sm_120", "s120 p120:9.1").least_driver is None
    # Containers stand for source files: all of them have to be compiled.
    assert met("sm_120", "p80:7.8", "p80:8.7", "p80:8.0").least_driver == (570, 26)


def test_one_container_whose_ptx_fits_is_enough_for_the_file() -> None:
    found = met("sm_120", "p80:9.3", "p80:8.0", driver="580.65.06")
    assert (found.mode, found.least_driver) == ("jit", (525, 60, 13))
    late = met("sm_120", "p80:9.1", "p80:9.2", driver="580.65.06")
    # 595 takes both; 590 would take one.
    assert (late.reason, late.least_driver) == ("ptx-newer-than-driver", (595, 45, 4))


def test_ptx_newer_than_any_table_is_not_promised() -> None:
    found = met("sm_120", "p80:9.9")
    assert (found.mode, found.reason) == ("none", "ptx-newer-than-driver")
    assert "any driver known here" in found.message


def test_cards_below_sm_75_have_no_driver_for_ptx_of_cuda_13_1() -> None:
    # R580 is the last branch for Maxwell, Pascal and Volta.
    assert met("sm_61", "p50:9.0").mode == "jit"
    found = met("sm_61", "p50:9.1")
    assert (found.mode, found.reason) == ("none", "ptx-newer-than-driver")
    assert "last driver branch for sm_61, 580" in found.message
    assert met("sm_75", "p50:9.1").mode == "jit"


def test_messages_name_the_code_and_the_card() -> None:
    assert met("sm_121", "s120").message.startswith("machine code for sm_120, which runs on sm_121")
    assert met("sm_120", "s80 p121").message == "no code for sm_120, only sm_80, compute_121"
    late = met("sm_120", "p90:9.1", driver="580.65.06").message
    assert late == "only PTX fits sm_120, and its ISA 9.1 is newer than driver 580.65.06"


def test_codes_lists_each_sm_once_and_in_order() -> None:
    file = device_file("a.so", "s90 s80 p90", "s80 s120a l90", container("s75", has_code=False))
    assert list(map(str, coverage.codes(file, "sass"))) == ["sm_80", "sm_90", "sm_120a"]
    assert list(map(str, coverage.codes(file, "ptx"))) == ["sm_90"]


def reached(codes: str) -> dict[int, str]:
    return dict(coverage.reach(tuple(map(code, codes.split()))))


def test_reach_is_what_portable_code_serves_and_how() -> None:
    assert reached("s86") == {86: "", 89: ""}
    assert reached("s90a s100f p90a:8.0") == {}
    assert reached("s120 p120:8.7") == {120: "", 121: ""}
    assert reached("s90 p103:9.0") == {90: "", **dict.fromkeys((103, 107, 110, 120, 121), "9.0")}
    # Two texts for a driver that takes only one of them are not alike.
    assert reached("p110:9.0") != reached("p110:9.1")
