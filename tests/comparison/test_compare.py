"""What a comparison says of values made by hand; what must come out is worked out beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from inventories import distribution, environment
from machines import machine

from envcheck.comparison.compare import compare
from envcheck.core.compared import Comparison, Likeness, Saved
from envcheck.core.compiled import Compilation, Compiled, CompiledKernels, Extension, Outcome
from envcheck.core.executed import Card, Executed, Measured, Run
from envcheck.core.model import (
    Assurance,
    Domain,
    Finding,
    Inventory,
    Report,
    Status,
    Target,
    Verdict,
)
from envcheck.core.rated import Rate, Rated
from envcheck.core.tried import Copied, Launches, Link, Tried

OK = Outcome(status="ok", milliseconds=3)
CRASHED = Outcome(status="crashed", signal="SIGSEGV")


def measured(sha: str = "aa", **changes: Any) -> Measured:
    fields = {"output": "out", "dtype": "float16", "device": "cuda", "finite": True, "worst": 0.5}
    return Measured(**{**fields, "sha256": sha, **changes})


def run(*outputs: Measured, op: str = "mm", **changes: Any) -> Run:
    fields = {"family": "matmul", "dtype": "fp16", "case": "M=3", "direction": "forward"}
    whole = {**fields, "seed": 1, "outcome": OK, "outputs": outputs or (measured(),), **changes}
    return Run(op=op, **whole)


def ran(*runs: Run, outcome: Outcome = OK, **changes: Any) -> Inventory:
    card = Card(name="A", sm="sm_89", uuid="GPU-1", total_memory=24, free_memory=23, driver="570.1",
                mig=False)  # fmt: skip
    fields = {"card": card, "torch": "2.8.0", "message": "", **changes}
    return replace(environment(), executed=Executed(outcome=outcome, runs=runs, **fields))


def finding(
    check: str, subject: str, status: str, *, required: bool = True, message: str = "why"
) -> Finding:
    return Finding(check=check, subject=subject, status=Status(status), message=message,
                   domain=Domain.PACKAGE, evidence={}, required=required)  # fmt: skip


def report(*findings: Finding, target: str = "ada") -> Report:
    return Report(target=Target(name=target, sm="sm_89"), driver=None, verdict=Verdict.COMPATIBLE,
                  assurance=Assurance.SCANNED, findings=findings, summary={"line": ""})  # fmt: skip


def one(before: Inventory | Report, after: Inventory | Report) -> Comparison:
    first, other = (
        Saved(name=name, report=v) if isinstance(v, Report) else Saved(name=name, inventory=v)
        for name, v in (("a", before), ("b", after))
    )
    (found,) = compare(first, [other]).others
    return found


def likeness(before: Run, after: Run) -> tuple[Likeness, str]:
    found = one(ran(before), ran(after))
    return found.runs[0].likeness, found.runs[0].reason


def test_the_same_bytes_are_identical_whatever_it_took() -> None:
    found = one(ran(run(milliseconds=2.0)), ran(run(milliseconds=3.0)))
    assert [r.likeness for r in found.runs] == [Likeness.IDENTICAL]
    before, after = found.runs[0].before, found.runs[0].after
    assert before is not None
    assert after is not None
    assert (before.milliseconds, after.milliseconds) == (2.0, 3.0)
    assert (found.exit_code, found.differs) == (0, False)


def test_other_bytes_within_both_bounds() -> None:
    kind, reason = likeness(run(measured("aa")), run(measured("bb", worst=0.9)))
    assert (kind, reason) == (Likeness.WITHIN, "")
    assert one(ran(run(measured("aa"))), ran(run(measured("bb")))).exit_code == 0


def test_out_of_bounds_only_in_the_other_is_drift() -> None:
    found = one(ran(run()), ran(run(measured("bb", worst=3.0))))
    assert found.runs[0].likeness is Likeness.DRIFT
    assert found.lost == ("mm fp16 M=3: out is 3 times its bound",)
    assert found.exit_code == 10


def test_numbers_that_are_none_are_drift() -> None:
    bad = measured("bb", finite=False, worst=None)
    assert likeness(run(), run(bad)) == (Likeness.DRIFT, "out holds NaN or infinity")
    inexact = measured("bb", worst=None, exact=False)
    kind, reason = likeness(run(measured(exact=True, worst=None)), run(inexact))
    assert (kind, reason) == (Likeness.DRIFT, "out is not what it must be to the last bit")


def test_what_ran_and_now_fails_is_incompatible() -> None:
    broken = run(outcome=CRASHED, outputs=(), message="ended by SIGSEGV")
    found = one(ran(run()), ran(broken))
    assert found.runs[0].likeness is Likeness.INCOMPATIBLE
    assert found.lost == ("mm fp16 M=3: ended by SIGSEGV",)
    assert found.exit_code == 10


def test_out_of_memory_on_the_smaller_card_is_incompatible() -> None:
    small = run(outcome=Outcome(status="raised"), outputs=(), message="CUDA out of memory")
    assert likeness(run(), small) == (Likeness.INCOMPATIBLE, "CUDA out of memory")


def test_drift_and_failure_count_with_another_seed_too() -> None:
    # Each bound is derived from its own operands; only equality of bytes needs the same ones.
    kind, _ = likeness(run(seed=1), run(measured("bb", worst=2.0), seed=2))
    assert kind is Likeness.DRIFT
    kind, _ = likeness(run(seed=1), run(seed=2, outcome=CRASHED, outputs=()))
    assert kind is Likeness.INCOMPATIBLE


def test_another_seed_is_not_comparable() -> None:
    kind, reason = likeness(run(seed=1), run(measured("bb"), seed=2))
    assert (kind, reason) == (Likeness.NOT_COMPARABLE, "other operands: seed 1, then 2")


def test_left_out_is_not_comparable_and_named() -> None:
    left = run(outcome=Outcome(status="not-applicable"), outputs=(), message="left out: no time")
    found = one(ran(run(), run(op="add")), ran(left, run(op="add")))
    assert found.runs[0].likeness is Likeness.NOT_COMPARABLE
    assert found.runs[0].reason == "not run in the other: left out: no time"
    assert found.unseen == ("mm fp16 M=3",)
    assert found.exit_code == 0


def test_other_sizes_are_not_comparable_on_both_sides() -> None:
    found = one(ran(run(case="M=3")), ran(run(case="M=5")))
    told = {(r.case, r.likeness, r.reason) for r in found.runs}
    assert told == {
        ("M=3", Likeness.NOT_COMPARABLE, "other sizes in the other: M=5"),
        ("M=5", Likeness.NOT_COMPARABLE, "other sizes in the first: M=3"),
    }


def test_an_operation_that_is_gone_is_not_comparable() -> None:
    found = one(ran(run(), run(op="fft")), ran(run()))
    assert [r.reason for r in found.runs] == ["", "not in the other"]
    assert found.unseen == ("fft fp16 M=3",)


def test_what_was_wrong_is_never_identical() -> None:
    off = run(measured(worst=4.0))
    found = one(ran(off), ran(off))
    assert found.runs[0].likeness is Likeness.WRONG
    assert (found.exit_code, found.differs) == (0, False)


def test_what_was_wrong_and_holds_now_is_repaired() -> None:
    kind, reason = likeness(run(measured(worst=4.0)), run())
    assert (kind, reason) == (Likeness.REPAIRED, "in the first: out is 4 times its bound")


def test_a_run_without_outputs_does_not_hold() -> None:
    assert likeness(run(), run(outputs=())) == (
        Likeness.INCOMPATIBLE,
        "returned nothing to compare",
    )


def test_a_torch_that_does_not_start_is_no_empty_comparison() -> None:
    found = one(ran(run()), ran(outcome=CRASHED, message="libcudart.so.12: not found", card=None))
    assert found.exit_code == 10
    assert found.lost == ("starting what runs on the card: libcudart.so.12: not found",)
    assert found.unseen == ("mm fp16 M=3",)


def test_a_gradient_is_another_run() -> None:
    back = run(measured("cc", output="d_x"), direction="backward")
    found = one(ran(run(), back), ran(run(), back))
    assert [r.direction for r in found.runs] == ["forward", "backward"]


def test_checks_by_their_worst_status() -> None:
    before = report(finding("c", "x", "pass"), finding("c", "y", "warn"), finding("d", "z", "pass"))
    after = report(finding("c", "x", "pass"), finding("c", "y", "fail"), finding("d", "z", "pass"))
    found = one(before, after)
    rows = [(c.check, c.subject, c.before, c.after, c.lost) for c in found.checks]
    assert rows == [
        ("c", None, "warn", "fail", True),
        ("c", "y", "warn", "fail", True),
        ("d", None, "pass", "pass", False),
    ]
    assert found.lost == ("c: y: why",)
    assert found.exit_code == 10


def test_a_subject_of_another_version_is_the_same_subject() -> None:
    before = report(finding("c", "torch 2.6.0", "pass"), finding("c", "old 1.0", "fail"))
    after = report(finding("c", "torch 2.8.0+cu128", "fail"), finding("c", "old 1.0", "fail"))
    assert one(before, after).lost == ("c: torch: why",)


def test_a_failure_that_cannot_be_paired_is_told() -> None:
    before = report(finding("c", "a.py310.so", "pass"), finding("c", "b.so", "fail"))
    after = report(finding("c", "a.py311.so", "fail"), finding("c", "b.so", "fail"))
    found = one(before, after)
    assert found.lost == ()
    assert "c: a.py311.so fails, and a does not name it" in found.left


def test_a_failing_card_of_another_name_fails_the_check() -> None:
    before = report(finding("card-is-healthy", "NVIDIA GeForce RTX 4090", "pass"))
    after = report(finding("card-is-healthy", "NVIDIA GeForce RTX 5090", "fail"))
    found = one(before, after)
    assert found.lost == ("card-is-healthy: why",)


def test_a_subject_that_the_verdict_does_not_rest_on_loses_nothing() -> None:
    before = report(finding("c", "x", "pass"), finding("c", "y", "pass"))
    after = report(finding("c", "x", "pass"), finding("c", "y", "fail", required=False))
    found = one(before, after)
    assert found.exit_code == 0
    assert [(c.subject, c.after) for c in found.checks] == [(None, "pass"), ("y", "fail")]


def test_a_check_that_looked_at_nothing_now_is_unseen_and_compares_nothing() -> None:
    for status in ("skip", "error"):
        found = one(report(finding("c", "x", "pass")), report(finding("c", "x", status)))
        assert found.unseen == ("c",)
        assert found.compared == 0
        assert found.exit_code == 11
    gone = one(report(finding("c", "x", "pass")), report(finding("d", "x", "pass")))
    assert (gone.unseen, gone.exit_code) == (("c",), 11)


def test_a_repaired_check_is_told_and_loses_nothing() -> None:
    found = one(report(finding("c", "x", "fail")), report(finding("c", "x", "pass")))
    assert (found.lost, found.exit_code, found.differs) == ((), 0, True)


def test_inventories_alone_say_nothing_of_what_passed() -> None:
    found = one(environment(), environment())
    assert found.exit_code == 11
    assert found.left == ("checks: a and b holds no report",)


def test_a_report_beside_an_inventory() -> None:
    found = one(report(finding("c", "x", "pass")), environment())
    assert found.left == ("checks: b holds no report", "environment: not in a")
    assert (found.distributions, found.facts, found.exit_code) == ((), (), 11)


def test_distributions_come_go_and_change() -> None:
    before = environment(distributions=(distribution("numpy", "1.26"), distribution("old", "1")))
    after = environment(distributions=(distribution("numpy", "2.1"), distribution("new", "3")))
    told = {(c.name, c.before, c.after) for c in one(before, after).distributions}
    assert told == {("numpy", "1.26", "2.1"), ("old", "1", None), ("new", None, "3")}


def test_python_libc_driver_and_card() -> None:
    before, after = ran(run()), ran(run())
    assert before.environment is not None
    assert after.executed is not None
    assert after.executed.card is not None
    changed = replace(before.environment, python="3.12.1", libc="glibc 2.39", driver="580.1")
    card = replace(after.executed.card, name="B", sm="sm_120", total_memory=32)
    after = replace(after, environment=changed, executed=replace(after.executed, card=card))
    told = {c.name: (c.before, c.after) for c in one(before, after).facts}
    assert told == {
        "Python": ("3.11.7", "3.12.1"),
        "C library": ("glibc 2.36", "glibc 2.39"),
        "driver of the machine": (None, "580.1"),
        "card that ran": ("A", "B"),
        "card that ran: SM": ("sm_89", "sm_120"),
        "card that ran: memory": ("24", "32"),
    }


def test_measured_rates_side_by_side() -> None:
    def rated(tflops: float, copied: float | None) -> Inventory:
        memory = None if copied is None else Copied(size=1, by_kernel=copied, by_driver=7.0)
        card = Tried(uuid="GPU-1", copied=memory, link=Link(size=1, to_card=50.0, wrong=0),
                     launches=Launches(answered=6.0, enqueued=2.0, count=9))  # fmt: skip
        rate = Rate(dtype="bf16", size=8192, tflops=tflops, tflops_at_first=1.0, milliseconds=1.0,
                    repetitions=3, seconds=1.0, clock=1700)  # fmt: skip
        return replace(ran(run(), rated=Rated(rates=(rate,))), machine=machine(tried=(card,)))

    found = one(rated(600.0, 4000.0), rated(300.0, None))
    told = {(r.name, r.unit): (r.before, r.after) for r in found.rates}
    assert told == {
        ("launch, answered", "us"): (6.0, 6.0),
        ("launch, enqueued", "us"): (2.0, 2.0),
        ("host to card, pinned", "GB/s"): (50.0, 50.0),
        ("card's memory, by a kernel", "GB/s"): (4000.0, None),
        ("card's memory, by the driver", "GB/s"): (7.0, None),
        ("matrices bf16 of 8192", "Tflop/s"): (600.0, 300.0),
        ("matrices bf16 of 8192, clock", "MHz"): (1700, 1700),
    }
    assert found.differs is False  # numbers are no differences


def compiled(*compilations: Compilation, extensions: tuple[Extension, ...] = ()) -> Inventory:
    triton = CompiledKernels(target="sm_89", triton="3.4.0", outcome=OK, variables={},
                             compilations=compilations)  # fmt: skip
    made = Compiled(target="sm_89", outcome=OK, triton=triton, extensions=extensions)
    return replace(environment(), compiled=made)


def compilation(outcome: Outcome, message: str = "") -> Compilation:
    return Compilation(kernel="add", function="add", dtype="fp32", config="B=64", outcome=outcome,
                       message=message)  # fmt: skip


def test_a_kernel_that_no_longer_compiles_is_lost() -> None:
    raised = compilation(Outcome(status="raised"), "ptxas: unknown sm_120")
    found = one(compiled(compilation(OK)), compiled(raised))
    assert found.lost == ("compiling add.add fp32 B=64: ptxas: unknown sm_120",)
    assert one(compiled(raised), compiled(compilation(OK))).lost == ()


def test_an_extension_that_no_longer_builds_or_imports_is_lost() -> None:
    def built(*, ok: bool | None, imported: Outcome | None, message: str = "") -> Inventory:
        said = () if ok in (True, None) else ("nvcc: error", "exit 1")
        return compiled(extensions=(Extension(name="x", origin="x==1", built=ok, said=said,
                                              imported=imported, message=message),))  # fmt: skip

    whole = built(ok=True, imported=OK)
    assert one(whole, built(ok=False, imported=None)).lost == ("building x: exit 1",)
    assert one(whole, built(ok=False, imported=None)).unseen == ("importing x",)
    broken = built(ok=True, imported=CRASHED, message="undefined symbol")
    assert one(whole, broken).lost == ("importing x: undefined symbol",)


def test_of_several_each_is_compared_with_the_first_and_the_worst_decides() -> None:
    good, bad = report(finding("c", "x", "pass")), report(finding("c", "x", "fail"))
    none = report(finding("d", "x", "pass"))

    def code(*others: Report) -> int:
        saved = [Saved(name=str(n), report=r) for n, r in enumerate(others)]
        return compare(Saved(name="first", report=good), saved).exit_code

    assert [code(good, good), code(good, none), code(none, bad), code(good, bad, good)] == [
        *(0, 11, 10, 10)
    ]


VERSIONS = st.sampled_from(["1", "2", "3"])
SETS = st.dictionaries(st.sampled_from("abcd"), VERSIONS)
RUNS = st.lists(
    st.builds(
        lambda op, sha, worst, seed, status: run(
            *([measured(sha, worst=worst)] if status == "ok" else []),
            op=op, seed=seed, outcome=Outcome(status=status),
        ),
        st.sampled_from("mno"), st.sampled_from("xy"), st.sampled_from([0.5, 2.0]),
        st.integers(1, 2), st.sampled_from(["ok", "raised", "not-applicable"]),
    ),
    max_size=5,
)  # fmt: skip
STATUSES = st.dictionaries(
    st.tuples(st.sampled_from("cd"), st.sampled_from("xyz")),
    st.tuples(st.sampled_from(list(Status)), st.booleans()),
)


@st.composite
def looks(draw: st.DrawFn) -> Saved:
    packages = tuple(distribution(n, v) for n, v in sorted(draw(SETS).items()))
    inventory = ran(*draw(RUNS))
    assert inventory.environment is not None
    inventory = replace(
        inventory, environment=replace(inventory.environment, distributions=packages)
    )
    findings = [
        finding(check, subject, status.value, required=required)
        for (check, subject), (status, required) in draw(STATUSES).items()
    ]
    return Saved(name="x", inventory=inventory, report=report(*findings))


@given(looks())
def test_nothing_differs_from_itself(saved: Saved) -> None:
    (found,) = compare(saved, [saved]).others
    assert not found.differs
    assert (found.distributions, found.facts, found.lost, found.unseen) == ((), (), (), ())
    assert all(c.before == c.after for c in found.checks)
    assert not {r.likeness for r in found.runs} & {
        *(Likeness.WITHIN, Likeness.DRIFT, Likeness.INCOMPATIBLE, Likeness.REPAIRED)
    }


@given(looks(), looks())
def test_turned_round_before_and_after_change_places(first: Saved, other: Saved) -> None:
    (there,), (back,) = compare(first, [other]).others, compare(other, [first]).others
    for one_way, other_way in (
        (there.distributions, back.distributions),
        (there.facts, back.facts),
        (there.made, back.made),
    ):
        turned = {(c.name, c.after, c.before) for c in other_way}
        assert {(c.name, c.before, c.after) for c in one_way} == turned
    assert {(c.check, c.subject, c.before, c.after) for c in there.checks} == {
        (c.check, c.subject, c.after, c.before) for c in back.checks
    }
    assert there.compared == back.compared
    mirror = {
        Likeness.DRIFT: Likeness.REPAIRED,
        Likeness.INCOMPATIBLE: Likeness.REPAIRED,
    }
    names = [(r.op, mirror.get(r.likeness, r.likeness)) for r in there.runs]
    assert sorted(names) == sorted((r.op, mirror.get(r.likeness, r.likeness)) for r in back.runs)


@given(looks(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_listed_does_not_matter(saved: Saved, chance: Any) -> None:
    assert saved.inventory is not None
    assert saved.inventory.environment is not None
    assert saved.report is not None
    packages = list(saved.inventory.environment.distributions)
    findings = list(saved.report.findings)
    chance.shuffle(packages)
    chance.shuffle(findings)
    mixed = Saved(
        name="y",
        inventory=replace(
            saved.inventory,
            environment=replace(saved.inventory.environment, distributions=tuple(packages)),
        ),
        report=replace(saved.report, findings=tuple(findings)),
    )
    (found,) = compare(saved, [mixed]).others
    assert not found.differs
