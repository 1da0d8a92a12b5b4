"""The verdict is a fold over findings, and nothing that was not looked at is a success."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inventories import (
    DATA,
    container,
    device_file,
    distribution,
    environment,
    judged,
    named,
    read,
    scanned,
)

from envcheck.checks import CHECKS, Check, Question
from envcheck.core import codec
from envcheck.core.device_file import DeviceFile
from envcheck.core.model import (
    Assembler,
    Assurance,
    Domain,
    Finding,
    Inventory,
    Report,
    Status,
    Target,
    Torch,
    Triton,
    Verdict,
)
from envcheck.core.sm import KNOWN
from envcheck.judge import fold, judge

LOOKED = Check(id="looked", claim="c", how="h", remedy="r", required=True, run=lambda _: ())
OTHER = Check(id="other", claim="c", how="h", remedy="r", run=lambda _: ())


def found(*statuses: Status, check: Check = LOOKED, required: bool = True) -> list[Finding]:
    return [check.finding("s", status, "m", required=required) for status in statuses]


PASS, WARN, FAIL, SKIP, ERROR = Status


# The design's table: a fail decides; without one, a required skip or error, or nothing that was
# looked at, leaves it open.
@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ([], Verdict.INCONCLUSIVE),
        ([PASS], Verdict.COMPATIBLE),
        ([WARN], Verdict.COMPATIBLE),
        ([FAIL], Verdict.INCOMPATIBLE),
        ([SKIP], Verdict.INCONCLUSIVE),
        ([ERROR], Verdict.INCONCLUSIVE),
        ([PASS, WARN], Verdict.COMPATIBLE),
        ([PASS, SKIP], Verdict.INCONCLUSIVE),
        ([PASS, ERROR], Verdict.INCONCLUSIVE),
        ([PASS, FAIL], Verdict.INCOMPATIBLE),
        ([ERROR, FAIL], Verdict.INCOMPATIBLE),
        ([SKIP, FAIL, PASS], Verdict.INCOMPATIBLE),
    ],
)
def test_truth_table_of_the_fold(statuses: list[Status], verdict: Verdict) -> None:
    for order in itertools.permutations(statuses):
        assert fold(found(*order), (LOOKED, OTHER)) is verdict


def test_what_is_not_required_never_decides() -> None:
    for status in Status:
        extra = found(status, required=False)
        assert fold([*found(PASS), *extra], (LOOKED, OTHER)) is Verdict.COMPATIBLE
        assert fold(extra, (LOOKED, OTHER)) is Verdict.INCONCLUSIVE


def test_a_required_check_must_have_answered_itself() -> None:
    assert fold(found(PASS, check=OTHER), (LOOKED, OTHER)) is Verdict.INCONCLUSIVE
    assert fold(found(PASS, check=OTHER), (OTHER,)) is Verdict.COMPATIBLE
    assert fold(found(FAIL, check=OTHER), (LOOKED, OTHER)) is Verdict.INCOMPATIBLE


STATUSES = st.lists(st.tuples(st.sampled_from(Status), st.booleans()), max_size=8)


@given(STATUSES, st.tuples(st.sampled_from(Status), st.booleans()))
def test_one_more_finding_never_turns_bad_into_good(
    rows: list[tuple[Status, bool]], more: tuple[Status, bool]
) -> None:
    rank = [Verdict.COMPATIBLE, Verdict.INCONCLUSIVE, Verdict.INCOMPATIBLE]

    def of(items: list[tuple[Status, bool]]) -> int:
        made = [LOOKED.finding("s", status, "m", required=r) for status, r in items]
        return rank.index(fold(made, (LOOKED,)))

    if more not in [(PASS, True), (WARN, True)] or of(rows) != 1:
        assert of([*rows, more]) >= of(rows)


def _raise(_: Question) -> list[Finding]:
    message = "boom"
    raise KeyError(message)


def test_a_check_that_raises_is_an_error_of_its_own_and_the_others_still_run() -> None:
    broken = replace(OTHER, run=_raise)
    inventory = scanned(device_file("a.so", "s90"))
    target = Target(name="sm_90", sm="sm_90")
    report = judge(target, inventory, None, (broken, *CHECKS))
    first = report.findings[0]
    assert (first.check, first.status, first.domain) == ("other", Status.ERROR, Domain.ENVCHECK)
    assert "KeyError" in first.message
    assert "boom" in first.message
    assert {f.check for f in report.findings} == {"other", *(c.id for c in CHECKS)}
    # Not compatible, for it is not known what it would have said.
    assert report.verdict is Verdict.INCONCLUSIVE


def test_a_check_that_raises_half_way_does_not_leave_half_its_findings() -> None:
    def half(_: Question) -> object:
        yield OTHER.finding("s", Status.PASS, "m")
        message = "then"
        raise ValueError(message)

    broken = replace(OTHER, run=half)
    report = judge(Target(name="sm_90", sm="sm_90"), scanned(), None, (broken,))
    assert [f.status for f in report.findings] == [Status.ERROR]


def test_a_check_that_says_nothing_is_an_error() -> None:
    report = judge(Target(name="sm_90", sm="sm_90"), scanned(), None, (OTHER,))
    assert [(f.status, f.message) for f in report.findings] == [
        (Status.ERROR, "the check said nothing")
    ]
    assert report.verdict is Verdict.INCONCLUSIVE


NOTHING = [
    scanned(),
    scanned(passed_over=12),
    environment(),
    environment(distributions=(distribution("pure"),)),
    scanned(DeviceFile(path="a.so", format="other", size=0, skipped="empty file")),
]


@pytest.mark.parametrize("inventory", NOTHING)
def test_nothing_looked_at_is_inconclusive(inventory: Inventory) -> None:
    report = judged(inventory, "sm_90")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.verdict.exit_code == 11
    assert report.summary["line"] == ("inconclusive with sm_90: no device code was found to judge")


TORCH = environment(
    device_file("torch/lib/libtorch_cuda.so", "s80 s86 s90 s120", "s90a"),
    device_file("pkg/_C.so", "p80:8.4"),
    device_file("pkg/_D.so", container("s80", ("a",)), container("s80 s120", ("b",))),
    device_file("bitsandbytes/libbitsandbytes_cuda128.so", "s120"),
    device_file("bitsandbytes/libbitsandbytes_cuda118.so", "s80"),
    DeviceFile(path="x.so", format="other", size=1, problem="ELF header: cut"),
    DeviceFile(path="y.so", format="other", size=1, skipped="no device code"),
    distributions=(
        distribution("torch", "2.8.0", "torch/lib/libtorch_cuda.so", requires="triton==3.4.0"),
        distribution("triton", "3.3.1"),
        distribution("pkg", "1.0", "pkg/_C.so", "pkg/_D.so"),
    ),
    torch=Torch(version="2.8.0", cuda="12.8", arch_list=("sm_80", "sm_120")),
    triton=Triton(version="3.3.1", assemblers=(Assembler(name="ptxas", version="12.4"),)),
)
SAMPLES = [
    *NOTHING,
    TORCH,
    scanned(device_file("a.so", "s90 p90:9.1"), device_file("b.so", "l90")),
    scanned(*(read(p) for p in sorted((DATA / "elf").iterdir()) if p.suffix == ".so")),
    scanned(*(read(p) for p in sorted((DATA / "truth" / "objects").iterdir()))),
]


@cache
def answers() -> list[tuple[Inventory, str, str | None, Report]]:
    """Judge each sample for each card and driver, once."""
    return [
        (inventory, sm, driver, judged(inventory, sm, driver))
        for inventory in SAMPLES
        for sm in ("sm_61", "sm_90", "sm_120", "sm_110", "sm_999")
        for driver in (None, "580.159.04", "9999.1")
    ]


def test_every_report_fits_the_schema(report_schema: dict) -> None:
    validator = jsonschema.Draft202012Validator(report_schema)
    for _, _, _, report in answers():
        validator.validate(json.loads(codec.dumps(report)))


def test_no_check_falls_silent() -> None:
    for _, _, _, report in answers():
        assert {f.check for f in report.findings} == {c.id for c in CHECKS}
        assert not [f for f in report.findings if f.domain is Domain.ENVCHECK]


def test_the_same_inventory_gives_the_same_bytes() -> None:
    saved = {id(i): codec.loads(Inventory, codec.dumps(i), name="inventory.json") for i in SAMPLES}
    for inventory, sm, driver, report in answers():
        assert codec.dumps(judged(saved[id(inventory)], sm, driver)) == codec.dumps(report)


def test_every_failure_says_what_to_do() -> None:
    for _, _, _, report in answers():
        for finding in report.findings:
            if finding.status is Status.FAIL and finding.required:
                assert finding.remedy, finding


def test_scanning_claims_no_more_than_scanning() -> None:
    assert {report.assurance for _, _, _, report in answers()} == {Assurance.SCANNED}


def test_the_summary_counts_what_was_found() -> None:
    report = judged(TORCH, "sm_120", "580.65.06")
    for status in Status:
        assert report.summary[status.value] == sum(f.status is status for f in report.findings)
    # pkg/_C.so is JIT; torch, pkg/_D.so and the loaded bitsandbytes are native; x.so is broken.
    assert report.summary["files"] == {"native": 3, "jit": 1, "none": 1}
    assert report.summary["least_driver"] == "570"
    assert report.driver == "580.65.06"


@pytest.mark.parametrize(
    ("inventory", "line"),
    [
        (
            scanned(device_file("a.so", "s90"), device_file("b.so", "p80:8.4")),
            "compatible with hopper (sm_90): 1 file(s) native, 1 JIT-only; least driver 550.54.14",
        ),
        (
            scanned(device_file("a.so", "s80"), device_file("b.so", "s80")),
            "incompatible with hopper (sm_90): a.so: no code for sm_90, only sm_80 (and 1 more)",
        ),
        (
            scanned(DeviceFile(path="x.so", format="other", size=1, problem="cut")),
            "inconclusive with hopper (sm_90): x.so: cannot be judged: cut",
        ),
    ],
)
def test_the_line_gives_the_verdict_and_its_cause(inventory: Inventory, line: str) -> None:
    report = judge(Target(name="hopper", sm="sm_90"), inventory, None)
    assert report.summary["line"] == line


def test_a_better_card_of_one_major_never_makes_a_file_worse() -> None:
    # Portable code runs on the same major with equal or higher minor (Tegra parts apart).
    for low, high in [("sm_80", "sm_86"), ("sm_86", "sm_89"), ("sm_120", "sm_121")]:
        for codes in ("s80", "s86", "s89", "s120", "s121", "p80:8.4", "s80 p120:8.7"):
            inventory = scanned(device_file("a.so", codes))
            if judged(inventory, low).verdict is Verdict.COMPATIBLE:
                assert judged(inventory, high).verdict is Verdict.COMPATIBLE


DRIVERS = ["450.80.02", "525.60.13", "550.54.14", "570.26", "580.65.06", "590.44.01", "610.43.02"]
CODES = st.lists(
    st.sampled_from(
        [f"{k}{n}{s}" for k in "sp" for n in (75, 80, 89, 90, 100, 120) for s in ("", "a", "f")]
        + ["p90:9.1", "p120:8.7", "p80:7.0", "l90"]
    ),
    min_size=1,
    max_size=4,
).map(" ".join)


@given(st.lists(CODES, min_size=1, max_size=3), st.sampled_from([n for n in KNOWN if n >= 75]))
def test_a_newer_driver_never_makes_it_worse(parts: list[str], number: int) -> None:
    inventory = scanned(device_file("a.so", *parts))
    rank = {Verdict.INCOMPATIBLE: 0, Verdict.INCONCLUSIVE: 1, Verdict.COMPATIBLE: 2}
    ranks = [rank[judged(inventory, f"sm_{number}", d).verdict] for d in DRIVERS]
    assert ranks == sorted(ranks)
    # Without a driver the answer is what the least one that would do can promise.
    free = judged(inventory, f"sm_{number}")
    least = free.summary["least_driver"]
    if free.verdict is Verdict.COMPATIBLE and isinstance(least, str):
        assert judged(inventory, f"sm_{number}", least).verdict is Verdict.COMPATIBLE


def test_ids_in_the_tests_are_ids_of_checks() -> None:
    for check in CHECKS:
        assert named(check.id) is check


def test_of_single_checks_an_answer_that_decides_nothing_beside_others_is_one() -> None:
    """With --only of such a check its pass is no reason to be inconclusive."""
    left_out = LOOKED.finding("c", SKIP, "m", required=False, evidence={"not_asked": True})
    answer = OTHER.finding("s", PASS, "m", required=False)
    assert fold([left_out, answer], (LOOKED, OTHER)) is Verdict.COMPATIBLE
    assert fold([answer], (LOOKED, OTHER)) is Verdict.INCONCLUSIVE
