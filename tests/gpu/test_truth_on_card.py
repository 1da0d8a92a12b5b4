"""What the card of this machine does with each object is what was predicted from its bytes.

One table of all counts ends the session, in Markdown; `-rP` shows what was not decided.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import agreement_table
import combinations
import pytest
from inventories import DATA
from own_python import python

from envcheck.core import codec
from envcheck.core.agreement import BY_DESIGN, BY_ITSELF, COMPILER
from envcheck.core.driver_facts import DriverCard
from envcheck.core.tally import Selftest
from envcheck.output import selftest as text

# What code computes is not told by bytes, so it may not be told by a test of them either.
_MOSTLY = 0.8


def ran(folder: Path, *, measured: bool = False) -> Selftest:
    """Run the command on a folder of objects, and show its table and what was not decided."""
    done = python("-m", "envcheck", "selftest", "--truth", folder, "--format", "json")
    assert done.stdout, done.stderr
    found = codec.from_json(Selftest, json.loads(done.stdout), "selftest")
    assert done.returncode == found.exit_code
    text.render(found, sys.stdout, verbose=True)
    agreement_table.keep(found, folder=folder.name if measured else "")
    return found


def disagreeing(found: Selftest) -> list[str]:
    return [
        f"{each.name}: {each.prediction.expected} ({each.prediction.reason}), {each.outcome}"
        for each in found.objects
        if each.agreement == "disagree"
    ]


@pytest.mark.parametrize("name", ["truth", "truth-extra"])
def test_measured_objects(name: str, card: DriverCard) -> None:
    found = ran(DATA / name, measured=True)
    assert disagreeing(found) == []
    assert sum(group.agree for group in found.groups) >= _MOSTLY * len(found.objects)
    rows = json.loads((DATA / name / "h200.json").read_text())
    if (found.card.name, found.driver) == (rows["card"], rows["driver"]):
        assert {each.name: each.outcome for each in found.objects} == rows["results"]


def test_combinations_that_were_never_measured(card: DriverCard, tmp_path: Path) -> None:
    if combinations.toolkit() is None:
        pytest.skip("no nvcc to build objects with")
    wanted = combinations.all_of(card.shared_memory_per_block)
    failed = combinations.build(wanted, tmp_path)
    for name, why in failed.items():
        sys.stdout.write(f"not built: {name}: {why.splitlines()[-1]}\n")
    found = ran(tmp_path)
    assert len(found.objects) == len(wanted) - len(failed)
    assert disagreeing(found) == []
    assert sum(group.agree for group in found.groups) >= 40
    assert {r for g in found.groups for r in g.undecidable} <= {BY_DESIGN, BY_ITSELF, COMPILER}


@pytest.mark.filterwarnings("default")  # what Triton's own code warns of is not ours
def test_what_triton_compiles_for_several_cards(card: DriverCard, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    made = combinations.build_triton(tmp_path)
    assert len(made) >= 8
    found = ran(tmp_path)
    assert disagreeing(found) == []
    assert sum(group.agree for group in found.groups) == len(made)
