"""Which checks are asked, and what has to run for them."""

from __future__ import annotations

import pytest

from envcheck import choosing
from envcheck.checks import CHECKS
from envcheck.errors import UsageError

ALL = {check.id for check in CHECKS}


def test_without_options_all_are_asked_and_everything_runs():
    asked = choosing.chosen([], [])
    assert asked == ALL
    assert choosing.parts(asked) == ("ops", "triton", "cuda", "extensions")


def test_only_and_skip_together_leave_what_both_allow():
    names = ["core-ops-match-reference", "results-repeat"]
    assert choosing.chosen(names, names[1:]) == {names[0]}
    assert choosing.chosen([], names) == ALL - set(names)


@pytest.mark.parametrize(
    ("check", "parts"),
    [
        ("core-ops-match-reference", ("ops",)),
        ("triton-kernels-match-reference", ("triton",)),
        ("cuda-kernels-match-reference", ("cuda",)),
        ("extensions-match-reference", ("extensions",)),
        ("device-code-runs-on-target", ()),
    ],
)
def test_only_what_a_check_looks_at_is_run(check, parts):
    assert choosing.parts(choosing.chosen([check], [])) == parts


@pytest.mark.parametrize("check", ["nothing-falls-back", "card-is-usable", "results-repeat"])
def test_a_check_of_all_runs_needs_something_that_runs(check):
    assert choosing.parts(choosing.chosen([check], [])) == ("ops",)


@pytest.mark.parametrize(
    ("only", "skip", "message", "remedy"),
    [
        (
            ["core-ops"],
            [],
            "--only core-ops: there is no such check; did you mean core-ops-match-reference?",
            "--only core-ops-match-reference",
        ),
        ([], ["results-repeats"], "did you mean results-repeat?", "--skip results-repeat"),
        (["zzz"], [], "--only zzz: there is no such check", "envcheck explain"),
        (["results-repeat"], ["results-repeat"], "leave no check", "leave one option out"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_one_that_is_meant(only, skip, message, remedy):
    with pytest.raises(UsageError) as raised:
        choosing.chosen(only, skip)
    assert message in raised.value.message
    assert remedy in raised.value.remedy
