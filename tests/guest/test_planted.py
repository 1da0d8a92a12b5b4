"""Broken operations are caught by the facts about them, good ones never: no card is needed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="operations are torch's")

from dataclasses import replace  # noqa: E402

import planted  # noqa: E402
import planted_forms as forms  # noqa: E402

from envcheck.core.request import ExecuteRequest  # noqa: E402
from envcheck.guest import measuring, workload  # noqa: E402
from envcheck.guest.measuring import Task  # noqa: E402
from envcheck.guest.ops import catalogue  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def measured(op, dtype="fp32", seed=1):
    tasks = [Task(op=op, dtype=dtype, case=c, seed=seed, device="cpu") for c in op.pairs(dtype)]
    return [run for task in tasks for run in measuring.measure(task)]


@pytest.mark.parametrize("name", [name for name in planted.BROKEN if name in planted.EXPECTED])
def test_a_broken_operation_is_caught_for_what_it_is(name):
    found = planted.suspicions(measured(planted.BROKEN[name]), "cpu")
    assert found == planted.EXPECTED[name]


@pytest.mark.parametrize("name", forms.EXTENSION)
def test_a_broken_extension_is_caught_for_what_it_is(name):
    assert planted.suspicions(measured(forms.extension(name)), "cpu") == forms.EXTENSION[name]


def test_an_extension_that_only_copies_is_seen_by_its_kernels():
    (run, *_) = measured(forms.extension("good"))
    copied = replace(run, watched=True, kernels=("Memcpy DtoH (Device -> Pageable)",))
    assert planted.suspicions([copied], "cpu") == {"no kernel"}
    computed = replace(copied, kernels=(*copied.kernels, "sm90_xmma_gemm_f32f32"))
    assert planted.suspicions([computed], "cpu") == set()


def test_memory_that_nothing_wrote_is_caught():
    """What it holds differs from run to run, but it is not the result."""
    found = planted.suspicions(measured(planted.BROKEN["leaves a row out"]), "cpu")
    assert found & {"out of bounds", "not finite"}


def test_sums_in_bf16_are_caught_even_where_the_operands_are_bf16():
    op = replace(planted.BROKEN["sums in bf16"], cases=planted.MM.cases[:1])
    assert planted.suspicions(measured(op, "bf16"), "cpu") == {"out of bounds"}


def test_an_output_that_never_was_on_the_card_is_caught():
    op = planted.ONLY_ON_A_CARD["stays on the cpu"]
    assert planted.suspicions(measured(op), "cuda") == {"elsewhere"}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("op", planted.GOOD.values(), ids=planted.GOOD)
def test_good_operations_are_never_suspected(op, seed):
    for dtype in ("fp32", "bf16"):
        runs = measured(op, dtype, seed)
        assert runs
        assert planted.suspicions(runs, "cpu") == set()


# CPUs sum some gradients in the operands' own type, or have no such operation at all.
ON_CPUS = [
    (op, dtype)
    for op in catalogue.OPS
    for dtype in op.dtypes
    if op.family in ("norms", "reductions", "places", "libraries", "training")
    and dtype in ("fp32", "bf16", "int32")
    and (dtype != "bf16" or op.name not in ("layer_norm", "cross_entropy", "embedding"))
]


@pytest.mark.parametrize(("op", "dtype"), ON_CPUS, ids=lambda v: getattr(v, "name", v))
def test_the_first_cases_of_the_catalogue_hold_on_a_cpu(op, dtype):
    first = replace(op, cases=(*op.cases[:1], *op.cases[-1:]))
    runs = measured(first, dtype)
    assert [run.message for run in runs if not run.holds] == []
    assert planted.suspicions(runs, "cpu") == set()


@pytest.mark.parametrize(
    ("name", "status", "word"),
    [
        ("hangs", "timed-out", "not done after 2 s"),
        ("exits", "exited", "ended with code 1: giving up"),
        ("exits as programs do", "exited", "ended with code 1: giving up"),
        ("touches what is not there", "crashed", "killed by SIGSEGV"),
    ],
)
def test_what_ends_its_process_costs_its_own_run(name, status, word):
    fatal = planted.FATAL[name]
    good = replace(planted.MM, dtypes={"fp32": planted.MM.dtypes["fp32"]})
    fatal = replace(fatal, name="fatal", cases=fatal.cases[:1], dtypes=good.dtypes)
    ops = [good, fatal, replace(good, name="after")]
    done = workload.execute(ExecuteRequest(device="cpu", budget=200), ops)
    by_name = {op.name: [r for r in done.runs if r.op == op.name] for op in ops}
    assert [len(each) for each in by_name.values()] == [3, 1, 3]
    (lost,) = by_name["fatal"]
    assert (lost.outcome.status, lost.message) == (status, word)
    assert all(r.holds for r in (*by_name["mm"], *by_name["after"]))
    assert {g.processes for g in done.groups} == {2}
