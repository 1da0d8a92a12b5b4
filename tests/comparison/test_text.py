"""A comparison on a page: which rows there are, and the line that says how it ended."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import jsonschema
import pytest

import envcheck as package
from envcheck.core import codec
from envcheck.core.compared import (
    Change,
    Checked,
    Comparison,
    Comparisons,
    Likeness,
    Made,
    Measure,
    Ran,
    Rate,
    Side,
)
from envcheck.output import comparison, comparison_markdown

A, B = Side(name="a.json", verified=True, target="ada (sm_89)"), Side(name="b.json", verified=False)


def measure(**changes: object) -> Measure:
    fields = {"status": "ok", "holds": True, "seed": 1, "worst": 0.5, "milliseconds": 2.0}
    return Measure(**{**fields, **changes})


def ran(op: str, likeness: Likeness, reason: str = "", **after: object) -> Ran:
    return Ran(part="ops", family="f", op=op, dtype="fp16", case="M=3", direction="backward",
               likeness=likeness, reason=reason, before=measure(kernels=("old", "both")),
               after=measure(**after))  # fmt: skip


FULL = Comparison(
    other=B,
    distributions=(Change(name="numpy", before="1.26", after=None),),
    facts=(Change(name="Python", before="3.11.7", after="3.12.1"),),
    checks=(
        Checked(check="c", before="pass", after="pass"),
        Checked(check="d", before="pass", after="fail", message="\x1b[2Jwhy", lost=True),
    ),
    runs=(
        ran("mm", Likeness.IDENTICAL),
        ran("fft", Likeness.DRIFT, "out is 2 times", worst=2.0, kernels=("new", "both")),
    ),
    made=(Made(name="importing x", before="ok", after="crashed", message="gone", lost=True),),
    rates=(Rate(name="memory", unit="GB/s", before=4000.0, after=3000.0),
           Rate(name="launch", unit="us", before=None, after=2.0)),
    left=("machine: not in b.json",),
    compared=3,
    unseen=("e",),
    lost=("d: why", "importing x: gone"),
)  # fmt: skip


def test_the_document_fits_its_schema_and_is_read_back() -> None:
    found = Comparisons(first=A, others=(FULL, Comparison(other=B)))
    text = codec.dumps(found)
    schema = json.loads((Path(package.__file__).parent / "schema/comparison-v1.json").read_bytes())
    jsonschema.validate(json.loads(text), schema)
    assert codec.loads(Comparisons, text, name="text") == found
    for broken in (text.replace('"drift"', '"fine"'), text.replace('"lost"', '"last"')):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(broken), schema)


def lines(each: Comparison, verbosity: int = 0) -> list[str]:
    stream = io.StringIO()
    comparison.render(Comparisons(first=A, others=(each,)), stream, verbosity=verbosity)
    return stream.getvalue().splitlines()


def rows(each: Comparison, verbosity: int = 0) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in lines(each, verbosity)]


def test_everything_that_is_another_one_has_a_row() -> None:
    shown = rows(FULL)
    for row in (
        ["numpy", "1.26", "-"],
        ["Python", "3.11.7", "3.12.1"],
        ["importing x", "ok", "crashed", "gone"],
        ["fft fp16 M=3 backward", "drift", "0.5 -> 2", "2 -> 2", "out is 2 times"],
        ["fft fp16 M=3 backward", "old", "new"],
        ["memory", "GB/s", "4000", "3000", "-25.0%"],
        ["launch", "us", "-", "2"],
        ["not compared: machine: not in b.json"],
        ["runs: 1 identical, 1 drift"],
        ["passed before, not looked at now: e"],
    ):
        assert row in shown, row


def test_what_is_the_same_is_shown_when_asked_for() -> None:
    assert not [row for row in rows(FULL) if row[0].startswith("mm")]
    assert [row for row in rows(FULL, 1) if row[0].startswith("mm")]


def test_a_strangers_text_does_not_reach_the_terminal() -> None:
    assert "\x1b" not in "".join(lines(FULL))
    assert any(r"\x1b[2Jwhy" in line for line in lines(FULL))


def test_the_heading_says_of_which_side_nothing_was_verified() -> None:
    assert lines(FULL)[0] == "a.json (ada (sm_89)) -> b.json (no report, not verified)"


def test_the_last_line() -> None:
    for each, said in (
        (FULL, "b.json: fails what passed before: d: why (and 1 more)"),
        (Comparison(other=B, left=("checks: none",)),
         "b.json: nothing could be compared: checks: none"),
        (Comparison(other=B, compared=3), ("b.json: nothing that passed fails, of 3 compared;"
         " nothing differs")),
        (Comparison(other=B, compared=3, unseen=("x",)), ("b.json: nothing that passed fails, of 3"
         " compared; 1 that passed were not looked at")),
    ):  # fmt: skip
        assert lines(each, -1) == [said]


def test_markdown_has_the_same_tables() -> None:
    text = comparison_markdown.render(Comparisons(first=A, others=(FULL,)))
    assert "| numpy | 1.26 | - |" in text
    assert "| importing x | ok | crashed | gone |" in text
    titles = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert titles == [s.title for s in comparison.sections(FULL, verbose=False)]
