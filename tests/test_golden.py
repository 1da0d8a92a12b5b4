"""Whole reports, byte for byte: what a change does to any of them is seen before users see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden.cases import CASES
from inventories import judged

from envcheck.core import codec
from envcheck.core.model import Inventory, Status
from envcheck.output import json

FOLDER = Path(__file__).parent / "golden"


def kept(name: str, file: str) -> str:
    return (FOLDER / name / file).read_text(encoding="utf-8")


def test_each_case_has_a_folder_and_each_folder_a_case() -> None:
    assert {p.name for p in FOLDER.iterdir() if (p / "report.json").exists()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_kept_inventory_gives_the_kept_report(name: str) -> None:
    """If it should not any more: python tests/golden/rewrite.py, and read the difference."""
    case = CASES[name]
    inventory = codec.loads(Inventory, kept(name, "inventory.json"), name=name)
    assert inventory == case.inventory
    report = judged(inventory, case.sm, case.driver)
    assert json.render([report]).rstrip("\n") + "\n" == kept(name, "report.json")


@pytest.mark.parametrize("name", CASES)
def test_a_case_comes_to_what_it_was_made_for(name: str) -> None:
    case = CASES[name]
    report = judged(case.inventory, case.sm, case.driver)
    failing = {f.check for f in report.findings if f.status is Status.FAIL}
    assert (report.verdict.value, failing) == (case.verdict, set(case.failing))


EARLIER = sorted((Path(__file__).parent / "data" / "inventories").glob("*.json"))


@pytest.mark.parametrize("path", EARLIER, ids=lambda path: path.stem)
def test_facts_that_earlier_versions_kept_are_read_and_judged_as_they_were(path: Path) -> None:
    """Documents of one schema, as the commit that ends their name wrote them: never rewritten."""
    case = CASES[path.stem.rpartition("-")[0]]
    inventory = codec.loads(Inventory, path.read_text(encoding="utf-8"), name=path.name)
    report = judged(inventory, case.sm, case.driver)
    failing = {f.check for f in report.findings if f.status is Status.FAIL}
    assert report.verdict.value == case.verdict
    assert failing == set(case.failing)


def test_there_are_documents_of_earlier_versions() -> None:
    assert len(EARLIER) >= 8
