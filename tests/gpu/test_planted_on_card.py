"""Planted faults are caught on a real card, each as what it is, and what is good never is.

ENVCHECK_SEEDS says with how many seeds; 100 take two minutes. What ends its process is tried
with few: its operands do not matter.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="operations are torch's")

sys.path.append(str(Path(__file__).parents[1] / "guest"))

import planted  # noqa: E402
import planted_forms as forms  # noqa: E402

from envcheck.core.request import ExecuteRequest  # noqa: E402
from envcheck.guest import workload  # noqa: E402

SEEDS = int(os.environ.get("ENVCHECK_SEEDS", "5"))
FEW = 3
NOT_EXACT = {"not exact"}

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def _card():
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else this process could not fork any more
    if not torch.cuda.is_available():
        pytest.skip("there is no card that torch can use")


def named(op, seeds, process):
    """Return an operation once for each seed: operands are drawn by the name."""
    rules = {name: rule for name, rule in op.dtypes.items() if name in ("fp32", "bf16")}
    return [
        replace(op, name=f"{op.name} #{seed}", dtypes=rules, process=process)
        for seed in range(seeds)
    ]


def found(operations, budget=600):
    """Run them; returns the suspicions against each, by name without the seed, and the runs."""
    done = workload.execute(ExecuteRequest(budget=budget), operations)
    assert done.message == ""
    by_name = defaultdict(list)
    for run in done.runs:
        by_name[run.op].append(run)
    assert set(by_name) == {op.name for op in operations}
    suspected = defaultdict(list)
    for name, runs in by_name.items():
        suspected[name.rpartition(" #")[0]].append(planted.suspicions(runs, "cuda"))
    return suspected, done


def told(suspected, done):
    """Print what was caught how often, for who reads along."""
    for name, each in suspected.items():
        sys.stdout.write(f"{name}: {len(each)} times {sorted(set().union(*each))}\n")
    groups = {g.family: (g.seconds, g.processes) for g in done.groups}
    sys.stdout.write(f"{len(done.runs)} runs, seconds and processes {groups}\n")


def test_good_operations_are_never_suspected(tmp_path):
    good = [*planted.GOOD.values(), forms.kernel("good", tmp_path), forms.extension("good")]
    suspected, done = found([o for op in good for o in named(op, SEEDS, "good")])
    told(suspected, done)
    assert len(suspected) == 5  # the kernel and the extension are both named good
    assert {name: each for name, each in suspected.items() if any(each)} == {}
    assert all(run.holds for run in done.runs)


@pytest.mark.parametrize("form", ["operation", "kernel", "extension"])
def test_every_fault_is_caught_as_what_it_is(form, tmp_path):
    if form == "operation":
        faults = {**planted.BROKEN, **planted.ONLY_ON_A_CARD}
        expected = {n: planted.EXPECTED.get(n, set()) for n in faults}
    elif form == "kernel":
        expected = forms.KERNELS
        faults = {name: forms.kernel(name, tmp_path) for name in expected}
    else:
        expected = {**forms.EXTENSION, **forms.EXTENSION_ON_A_CARD}
        faults = {name: forms.extension(name) for name in expected}
    suspected, done = found([o for op in faults.values() for o in named(op, SEEDS, "broken")])
    told(suspected, done)
    for name in faults:
        assert len(suspected[name]) == SEEDS
        for each in suspected[name]:
            either = planted.ONE_OF.get(name)
            assert each & either if either else each >= expected[name], name
            beside = each - expected[name] - (either or set()) - {"unsteady"} - NOT_EXACT
            assert beside == set(), name


FATAL = {**planted.FATAL, **planted.FATAL_ON_A_CARD}


@pytest.mark.parametrize("form", ["operation", "kernel", "extension"])
def test_what_ends_its_process_costs_its_own_run_and_leaves_nothing_behind(form, tmp_path):
    if form == "operation":
        faults, kinds = FATAL, {**planted.EXPECTED, **planted.ONE_OF}
    elif form == "kernel":
        kinds = forms.FATAL_KERNELS
        faults = {name: forms.kernel(name, tmp_path) for name in kinds}
    else:
        kinds = forms.FATAL_EXTENSION
        faults = {name: forms.extension(name) for name in kinds}
    before = processes()
    operations = []
    for name, op in faults.items():
        for number in range(1 if name in ("hangs", "hang") else FEW):
            one = named(op, number + 1, "fatal")[-1]
            after = named(planted.MM, number + 1, "fatal")[-1]
            after = replace(after, name=f"after {name} #{number}", cases=after.cases[:1])
            rules = {"fp32": one.dtypes["fp32"]}
            operations += [
                replace(one, cases=one.cases[:1], dtypes=rules),
                replace(after, dtypes={"fp32": after.dtypes["fp32"]}),
            ]
    suspected, done = found(operations)
    told(suspected, done)
    for name in faults:
        for each in suspected[name]:
            assert len(each) == 1, name
            assert each <= kinds[name], name
        assert suspected[f"after {name}"] == [set()] * len(suspected[name])
    assert all(run.holds for run in done.runs if run.op.startswith("after"))
    assert processes() <= before


def processes():
    """Return the processes of this session: what a trial leaves behind would be its child."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return set(children.split())
