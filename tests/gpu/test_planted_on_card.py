"""Planted faults are caught on a real card, each as what it is, and what is good never is.

ENVCHECK_SEEDS says with how many seeds; 100 take two minutes. What ends its process is tried
with few: its operands do not matter.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
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

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def _card():
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else this process could not fork any more
    if not torch.cuda.is_available():
        pytest.skip("there is no card that torch can use")


def named(op, seeds, process, dtypes=("fp32", "bf16")):
    """Return an operation once for each seed: operands are drawn by the name."""
    rules = {name: rule for name, rule in op.dtypes.items() if name in dtypes}
    return [replace(op, name=f"{op.name} #{seed}", dtypes=rules, process=process) for seed in seeds]


def run(operations):
    """Run them; returns what is suspected, by name and in the order of seeds, and the runs."""
    done = workload.execute(ExecuteRequest(budget=800), operations)
    assert done.message == ""
    by_name = defaultdict(list)
    for each in done.runs:
        by_name[each.op].append(each)
    suspected = defaultdict(list)
    for op in operations:
        name = op.name.rpartition(" #")[0]
        suspected[name].append(planted.suspicions(by_name[op.name], "cuda"))
        assert by_name[op.name]
    for name, each in suspected.items():
        kinds = Counter(kind for kinds in each for kind in kinds)
        sys.stdout.write(f"{name}: {len(each)} times {dict(kinds)}\n")
    groups = {g.family: (g.seconds, g.processes) for g in done.groups}
    sys.stdout.write(f"{len(done.runs)} runs, seconds and processes {groups}\n")
    return suspected, done


def test_good_operations_are_never_suspected(tmp_path):
    good = [*planted.GOOD.values(), forms.kernel("good", tmp_path), forms.extension("good")]
    suspected, done = run([o for op in good for o in named(op, range(SEEDS), "good")])
    assert [len(each) for each in suspected.values()] == [SEEDS] * len(good)
    assert {name: each for name, each in suspected.items() if any(each)} == {}
    assert [r.message for r in done.runs if not r.holds] == []


def test_every_fault_is_caught_as_what_it_is(tmp_path):
    faults = [*planted.BROKEN.items(), *planted.ONLY_ON_A_CARD.items()]
    wanted = [(op, planted.EXPECTED.get(n, set()), planted.ONE_OF.get(n)) for n, op in faults]
    for name, kinds in forms.KERNELS.items():
        wanted.append((forms.kernel(name, tmp_path), kinds, None))
    for name, kinds in forms.KERNELS_ONE_OF.items():
        wanted.append((forms.kernel(name, tmp_path), set(), kinds))
    for name, kinds in {**forms.EXTENSION, **forms.EXTENSION_ON_A_CARD}.items():
        wanted.append((forms.extension(name), kinds, None))
    operations = []
    for op, _, _ in wanted:
        for seed in range(SEEDS):
            dtype = "bf16" if seed % 2 and "bf16" in op.dtypes else "fp32"
            operations += named(op, [seed], "broken", [dtype])
    suspected, _ = run(operations)
    not_as_such = {}
    for op, kinds, either in wanted:
        assert len(suspected[op.name]) == SEEDS
        for each in suspected[op.name]:
            beside = each - kinds - (either or set()) - {"unsteady", "not exact"}
            if beside or not each >= kinds or (either and not each & either):
                not_as_such.setdefault(op.name, []).append(each)
    assert not_as_such == {}


def test_what_ends_its_process_costs_its_own_run_and_leaves_nothing_behind(tmp_path):
    own = {**planted.FATAL, **planted.FATAL_ON_A_CARD}
    kinds = {op.name: planted.EXPECTED.get(n) or planted.ONE_OF[n] for n, op in own.items()}
    faults = list(own.values())
    for make, names in (
        (lambda name: forms.kernel(name, tmp_path), forms.FATAL_KERNELS),
        (forms.extension, forms.FATAL_EXTENSION),
    ):
        faults += map(make, names)
        kinds |= {make(name).name: kind for name, kind in names.items()}
    before = children()
    operations = []
    for op in faults:
        one = replace(op, cases=op.cases[:1])
        after = replace(planted.MM, name=f"after {op.name}", cases=planted.MM.cases[:1])
        for seed in range(1 if "timed-out" in kinds[op.name] else FEW):
            operations += named(one, [seed], "fatal", ["fp32"])
            operations += named(after, [seed], "fatal", ["fp32"])
    suspected, done = run(operations)
    assert {n: each for n, each in suspected.items() if n.startswith("after") and any(each)} == {}
    assert all(r.holds for r in done.runs if r.op.startswith("after"))
    ends = {name: set().union(*each) for name, each in suspected.items() if name in kinds}
    assert {n: end for n, end in ends.items() if len(end) != 1 or not end <= kinds[n]} == {}
    assert children() <= before


def children():
    """Return the processes below this one: what a trial leaves behind becomes its child."""
    mine = os.getpid()
    return set(Path(f"/proc/{mine}/task/{mine}/children").read_text().split())
