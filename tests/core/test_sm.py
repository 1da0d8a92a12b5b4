"""Which device code runs where, held against PyTorch's own table and NVIDIA's assembler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envcheck.core import sm
from envcheck.core.sm import Sm, ptx_fits, sass_runs_on

DATA = Path(__file__).parent / "data"
TORCH = json.loads((DATA / "device_requirement.json").read_text())
PTXAS = json.loads((DATA / "ptxas_targets.json").read_text())

DEVICES = [int(code) for code in TORCH["runs_on"]]
CARDS = PTXAS["runs_on"]["sm_50"]


@pytest.mark.parametrize("code", TORCH["runs_on"])
def test_cubin_runs_where_pytorch_says(code: str) -> None:
    found = [d for d in DEVICES if sass_runs_on(Sm(int(code)), Sm(d))]
    assert found == TORCH["runs_on"][code]


def test_pytorch_relaxes_three_pairs_for_cuda_13_2_which_are_not_taken_over() -> None:
    # "SBSA binaries run on Jetson" is said of one toolkit; without a card it is not believed.
    strict, relaxed = TORCH["runs_on"], TORCH["runs_on_since_cuda_13_2"]
    more = {(int(c), d) for c in strict for d in set(relaxed[c]) - set(strict[c])}
    assert more == {(70, 72), (80, 87), (86, 87)}
    assert not any(sass_runs_on(Sm(code), Sm(device)) for code, device in more)


@pytest.mark.parametrize("target", PTXAS["runs_on"])
def test_ptx_fits_where_ptxas_takes_it(target: str) -> None:
    found = [card for card in CARDS if ptx_fits(Sm.parse(target), Sm(card))]
    assert found == PTXAS["runs_on"][target]


# NVIDIA's description of family-specific targets: same family, equal or higher minor.
@pytest.mark.parametrize(
    ("code", "runs_on"),
    [
        ("sm_90a", {90}),
        ("sm_100a", {100}),
        ("sm_100f", {100, 103, 107}),
        ("sm_103f", {103, 107}),
        ("sm_107f", {107}),
        ("sm_110f", {110}),
        ("sm_101f", {110}),
        ("sm_101a", {110}),
        ("sm_120a", {120}),
        ("sm_120f", {120, 121}),
        ("sm_121f", {121}),
        ("sm_121a", {121}),
        # The card refuses a cubin whose header says sm_90f (tests/data/truth-extra).
        ("sm_90f", set()),
    ],
)
def test_suffixed_cubins_run_on_their_sm_or_family_alone(code: str, runs_on: set[int]) -> None:
    assert {n for n in sm.KNOWN if sass_runs_on(Sm.parse(code), Sm(n))} == runs_on


@pytest.mark.parametrize(
    ("code", "target"),
    [("sm_89", "sm_120"), ("sm_90", "sm_100"), ("sm_100", "sm_120"), ("sm_75", "sm_80")],
)
def test_no_cubin_crosses_a_major(code: str, target: str) -> None:
    assert not sass_runs_on(Sm.parse(code), Sm.parse(target))
    assert not sass_runs_on(Sm.parse(target), Sm.parse(code))


# Reports in which a tool raised a false alarm: the code does run (pytorch#172629, #164596, #95648).
@pytest.mark.parametrize(
    ("code", "target"),
    [("sm_120", "sm_121"), ("sm_120f", "sm_121"), ("sm_86", "sm_89"), ("sm_80", "sm_89")],
)
def test_code_for_a_lower_minor_is_enough(code: str, target: str) -> None:
    assert sass_runs_on(Sm.parse(code), Sm.parse(target))


@pytest.mark.parametrize(
    ("text", "number", "suffix"),
    [("sm_75", 75, ""), ("sm_90a", 90, "a"), ("compute_120f", 120, "f"), ("sm_103", 103, "")],
)
def test_parse_reads_both_spellings(text: str, number: int, suffix: str) -> None:
    parsed = Sm.parse(text)
    assert (parsed.number, parsed.suffix) == (number, suffix)
    assert str(parsed) == f"sm_{number}{suffix}"
    assert parsed.virtual == f"compute_{number}{suffix}"
    assert Sm.parse(str(parsed)) == Sm.parse(parsed.virtual) == parsed


@pytest.mark.parametrize(
    "text",
    [
        *("", "90", "sm_", "sm_9", "sm_9000", "sm_90b", "sm_90af", "SM_90", " sm_90", "sm_90\n"),
        *("sm-90", "gfx942", "compute_", "sm_90a ", "sm_\uff19\uff10"),
    ],
)
def test_parse_refuses_what_is_no_sm_and_quotes_it(text: str) -> None:
    with pytest.raises(ValueError, match="not an SM version") as refused:
        Sm.parse(text)
    assert repr(text) in str(refused.value)


def test_thor_has_two_names_and_one_silicon() -> None:
    assert Sm(101).silicon == Sm(110).silicon == 110
    assert Sm(101).major == 11
    assert sass_runs_on(Sm(101), Sm(110))
    assert not sass_runs_on(Sm(100), Sm(101))


def test_tables_of_the_module_agree_with_each_other() -> None:
    families = [number for family in sm.FAMILIES for number in family]
    assert len(families) == len(set(families))
    assert set(families) <= set(sm.KNOWN)
    assert set(sm.KNOWN) >= sm.TEGRA
    assert list(sm.KNOWN) == sorted(sm.KNOWN)
    # KNOWN is a closed list: every target of the assembler and of PyTorch is on it.
    named = {Sm.parse(t).silicon for t in PTXAS["runs_on"]} | set(map(int, TORCH["runs_on"]))
    assert {Sm(n).silicon for n in named} == set(sm.KNOWN)
