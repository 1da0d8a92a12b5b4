"""The page of failure classes names checks, tests and recipes that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envcheck.checks import CHECKS, Check
from envcheck.core.failure_classes import NAMES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "tests" / "FAILURE_CLASSES.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| [A-M][0-9]? \|", line)
]
# Of the page that sorted the reports: 34 classes, and the healthy ones.
CLASSES = [
    "A1",
    "A2",
    "A3",
    "A4",
    "A5",
    "B1",
    "B2",
    "B3",
    "C1",
    "C3",
    "C4",
    "C5",
    "D1",
    "D2",
    "D3",
    "D4",
    "E1",
    "E2",
    "E3",
    "E4",
    "F1",
    "F2",
    "F3",
    "F4",
    "G1",
    "G2",
    "H1",
    "H2",
    "I1",
    "I2",
    "I3",
    "J",
    "K",
    "L",
    "M",
]

# Found by damaging environments and hosts, and in none of the reports.
OF_NO_REPORT = (
    "interpreter-starts",
    "disk-takes-the-data",
    "memory-is-what-it-seems",
    "processors-are-what-they-seem",
    "limits-leave-room",
    "clock-is-right",
)


def test_every_class_has_one_row_of_seven_cells() -> None:
    assert [row[0] for row in ROWS] == CLASSES
    assert {len(row) for row in ROWS} == {7}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_a_row_names_exists(row: list[str]) -> None:
    name, _, reports, seen, checks, tests, missing = row
    assert reports.isdecimal()
    assert seen in ("static", "both", "card")
    ids = re.findall(r"`([a-z0-9-]+)`", checks)
    assert set(ids) <= {check.id for check in CHECKS}
    paths = re.findall(r"`(tests/[\w./]+)`", tests)
    assert [p for p in paths if not (ROOT / p).is_file()] == []
    # A class without a check, or without a proof, says so.
    assert (ids and paths) or missing.startswith("**gap**"), name


def test_the_names_that_explain_prints_are_those_of_the_page() -> None:
    assert list(NAMES.items()) == [(row[0], row[1]) for row in ROWS]


@pytest.mark.parametrize("check", CHECKS, ids=[check.id for check in CHECKS])
def test_a_check_names_the_classes_of_which_the_page_says_that_it_finds_them(check: Check) -> None:
    found = [row[0] for row in ROWS if f"`{check.id}`" in row[4]]
    assert found or check.id in OF_NO_REPORT
    assert list(check.classes) == found


def test_every_recipe_named_stands_in_the_test_beside_it() -> None:
    named = [pair for row in ROWS for pair in re.findall(r"`(tests/[\w./]+)` \(([^)]*)\)", row[5])]
    assert named
    for path, recipes in named:
        text = (ROOT / path).read_text(encoding="utf-8").lower()
        for recipe in recipes.split(", "):
            assert re.search(
                rf"(?<![a-z0-9]){recipe.lower()}(?![a-z0-9])", text.replace("_", " ")
            ), (
                path,
                recipe,
            )
