"""Versions and least drivers, against rows written down by hand from NVIDIA's tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envcheck.core import cuda
from envcheck.core.sm import Sm

PTXAS = json.loads((Path(__file__).parent / "data" / "ptxas_targets.json").read_text())


# CUDA toolkit release notes 13.2, table 3, and the ISA that came with each release.
@pytest.mark.parametrize(
    ("isa", "driver"),
    [
        ((7, 0), "450.51.05"),
        ((7, 8), "520.61.05"),
        ((8, 0), "525.60.13"),
        ((8, 4), "550.54.14"),
        # 8.5 came with 12.5; 12.6 brought none of its own, so 8.6 needs 12.7, which was never
        # published: the driver of 12.8 is the first.
        ((8, 5), "555.42.02"),
        ((8, 6), "570.26"),
        ((8, 7), "570.26"),
        ((8, 8), "575.51.03"),
        ((9, 0), "580.65.06"),
        ((9, 1), "590.44.01"),
        ((9, 2), "595.45.04"),
        ((9, 3), "610.43.02"),
    ],
)
def test_ptx_needs_the_driver_of_its_release(isa: cuda.Version, driver: str) -> None:
    least = cuda.parse_version(driver)
    assert cuda.driver_of_ptx(isa) == least
    assert cuda.driver_takes_ptx(least, isa)
    assert not cuda.driver_takes_ptx(_just_below(least), isa)


def _just_below(version: cuda.Version) -> cuda.Version:
    return (*version[:-1], version[-1] - 1, 999)


def test_ptx_older_than_the_table_is_taken_by_every_driver() -> None:
    assert cuda.driver_takes_ptx((450, 51, 5), (6, 3))
    assert cuda.driver_takes_ptx((418,), (6, 5))
    assert cuda.driver_of_ptx((6, 4)) == (450, 51, 5)


@pytest.mark.parametrize("isa", [(9, 6), (10, 0), (8, 9), (7, 9)])
def test_ptx_that_no_table_knows_is_refused_not_guessed(isa: cuda.Version) -> None:
    assert cuda.driver_of_ptx(isa) is None
    assert not cuda.driver_takes_ptx((9999,), isa)


# The card's own answer: driver 580.159.04 takes 9.0 and refuses 9.1 (tests/data/truth).
def test_the_measured_driver_stands_between_9_0_and_9_1() -> None:
    assert cuda.driver_takes_ptx((580, 159, 4), (9, 0))
    assert not cuda.driver_takes_ptx((580, 159, 4), (9, 1))


# CUDA compatibility guide, minor-version compatibility.
@pytest.mark.parametrize(
    ("major", "floor"), [(11, "450.80.02"), (12, "525.60.13"), (13, "580.65.06")]
)
def test_floor_of_each_cuda_major(major: int, floor: str) -> None:
    assert cuda.driver_text(cuda.MAJOR_DRIVER[major]) == floor


@pytest.mark.parametrize(
    ("driver", "newest"),
    [
        ("450.36.06", None),
        ("450.51.05", (11, 0)),
        ("535.54.02", (12, 1)),
        ("535.54.03", (12, 2)),
        ("535.183.01", (12, 2)),
        ("560.28.03", (12, 6)),
        ("570.25", (12, 6)),
        ("570.26", (12, 8)),
        ("580.159.04", (13, 0)),
        ("590.44.01", (13, 1)),
        ("615.10", (13, 4)),
        ("616", (13, 5)),
        ("700.1", (13, 5)),
    ],
)
def test_newest_cuda_of_a_driver(driver: str, newest: cuda.Version | None) -> None:
    assert cuda.cuda_of_driver(cuda.parse_version(driver)) == newest


def test_cuda_between_two_rows_needs_the_next_driver_and_above_the_table_is_not_known() -> None:
    assert cuda.driver_of_cuda((12, 7)) == (570, 26)
    assert cuda.driver_of_cuda((13, 6)) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [("580.65.06", (580, 65, 6)), ("525.60.13", (525, 60, 13)), ("12.8", (12, 8)), ("616", (616,))],
)
def test_versions_are_read_and_written_as_nvidia_does(text: str, parts: cuda.Version) -> None:
    assert cuda.parse_version(text) == parts
    if parts[0] > 100:
        assert cuda.driver_text(parts) == text


@pytest.mark.parametrize("text", ["535.1", "535.01", "535.54.3", "535", "580.65.06"])
def test_a_driver_that_was_named_is_written_as_it_was_named(text: str) -> None:
    assert cuda.driver_text(cuda.parse_version(text)) == text


def test_single_digits_get_their_zero_back() -> None:
    assert cuda.driver_text((450, 80, 2)) == "450.80.02"
    assert cuda.driver_text((470, 42, 1)) == "470.42.01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "580.",
        ".65",
        "580.65.06.1.2",
        "580,65",
        "v580",
        "580.65-06",
        "\uff15\uff18\uff10",
        "1234567",
    ],
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a version of dotted numbers"):
        cuda.parse_version(text)


@pytest.mark.parametrize("target", cuda.LEAST_ISA)
def test_least_isa_of_a_target_is_what_ptxas_takes_first(target: str) -> None:
    expected = cuda.parse_version(PTXAS["least_isa"][target])
    assert cuda.isa_of_target(Sm.parse(target)) == expected


def test_ptxas_knows_the_same_isas_as_the_table() -> None:
    assert PTXAS["ptxas"] == "13.5.37"
    known = {cuda.parse_version(v) for v in PTXAS["takes_isa"]}
    assert set(cuda.PTX_ISA_CUDA) == {v for v in known if v >= (7, 0)}


def test_every_target_of_the_assembler_that_a_card_can_have_has_a_least_isa() -> None:
    # Targets below sm_75 are older than the oldest ISA that is asked about.
    known = {t for t in PTXAS["runs_on"] if Sm.parse(t).number >= 75}
    assert known == set(cuda.LEAST_ISA)


# Toolkit release notes and the targets that NVRTC lists: the first release for each card.
@pytest.mark.parametrize(
    ("sm", "branch"),
    [
        *(("sm_80", (450,)), ("sm_86", (455,)), ("sm_89", (520,)), ("sm_90", (520,))),
        *(("sm_100", (570,)), ("sm_120", (570,)), ("sm_121", (575,)), ("sm_103", (575,))),
        ("sm_110", (580,)),
    ],
)
def test_first_driver_branch_of_a_card(sm: str, branch: cuda.Version) -> None:
    assert cuda.driver_of_sm(Sm.parse(sm)) == branch


@pytest.mark.parametrize("sm", ["sm_75", "sm_61", "sm_130"])
def test_branch_of_a_card_outside_the_table_is_not_known(sm: str) -> None:
    assert cuda.driver_of_sm(Sm.parse(sm)) is None


@pytest.mark.parametrize("table", [cuda.PTX_ISA_CUDA, cuda.CUDA_DRIVER, cuda.MAJOR_DRIVER])
def test_tables_rise(table: dict) -> None:
    keys, values = list(table), list(table.values())
    assert keys == sorted(set(keys))
    assert values == sorted(set(values))


def test_tables_refer_to_each_other() -> None:
    # 12.7 and nothing else was never published.
    assert set(cuda.PTX_ISA_CUDA.values()) - set(cuda.CUDA_DRIVER) == {(12, 7)}
    for name, first in cuda.FIRST_CUDA.items():
        assert str(Sm.parse(name)) == name
        assert first <= max(cuda.CUDA_DRIVER)
    for name, isa in cuda.LEAST_ISA.items():
        assert isa >= (6, 3), name
    # A plain target is never younger than its own suffixed forms.
    for name, first in cuda.FIRST_CUDA.items():
        assert cuda.FIRST_CUDA[str(Sm.parse(name).plain)] <= first
