"""How operations are put into processes, and what is known of those that were not run."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="operations are torch's")

import planted  # noqa: E402

from envcheck.core import codec  # noqa: E402
from envcheck.core.compiled import Outcome  # noqa: E402
from envcheck.core.executed import Executed, Measured, Run  # noqa: E402
from envcheck.core.request import ExecuteRequest  # noqa: E402
from envcheck.guest import journal, listening, workload  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
MM = replace(planted.MM, dtypes={"fp32": planted.MM.dtypes["fp32"]})


def cpu(**more):
    return ExecuteRequest(device="cpu", **{"budget": 120, **more})


def test_a_workload_is_told_whole_and_survives_the_documents():
    done = workload.execute(cpu(seed=5), [MM, replace(planted.NORM, family="other")])
    assert (done.outcome.status, done.message, done.card) == ("ok", "", None)
    assert done.torch == torch.__version__
    assert [g.family for g in done.groups] == ["matmul", "other"]
    assert {g.processes for g in done.groups} == {1}
    assert [r.dtype for r in done.runs].count("fp32") == 3 + 2
    assert all(r.holds for r in done.runs)
    run = done.runs[0]
    assert (run.op, run.case, run.direction) == ("mm", "M=33 N=65 K=301", "forward")
    assert run.source.startswith("Higham")
    assert run.first > 0
    assert codec.loads(Executed, codec.dumps(done), name="executed") == done


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not():
    runs = [workload.execute(cpu(seed=seed), [MM]).runs for seed in (1, 1, 2)]
    first, same, other = ([r.outputs[0].sha256 for r in each] for each in runs)
    assert first == same
    assert all(a != b for a, b in zip(first, other, strict=True))


def odd_views(operands, case):
    """Return what calls return, and no copy of: of one element, turned, read as conjugated."""
    x = operands["a"]
    numbers = torch.complex(x, x)
    return {
        "one": x[:1, 0].expand(1).as_strided((1, 1), (1, 0)),
        "turned": x.T,
        "none": x[:0],
        "scalar": x[0, 0],
        "bits": x > 0,
        "half": x.half()[::2, ::2],
        "conjugated": numbers.conj(),
        "negated": numbers.conj().imag,
    }


def nothing_known(operands, case):
    return {name: {} for name in odd_views(operands, case)}


def test_outputs_of_any_layout_are_told_by_their_bytes():
    op = replace(MM, call=odd_views, reference=nothing_known, gradients=())
    done = workload.execute(cpu(), [op])
    assert {r.message for r in done.runs} == {""}
    assert {o.output for r in done.runs for o in r.outputs} == set(
        odd_views({"a": torch.ones(2, 2)}, None)
    )
    assert all(o.same_again for r in done.runs for o in r.outputs)


def test_families_can_be_chosen():
    done = workload.execute(cpu(families=("other",)), [MM, replace(planted.NORM, family="other")])
    assert {r.family for r in done.runs} == {"other"}


def test_the_first_case_of_everything_comes_first_and_long_imports_last():
    late = replace(MM, name="late", imports=("colorsys",))
    apart = replace(MM, name="apart", family="apart")
    done = workload.execute(cpu(), [late, MM, replace(MM, name="mm2"), apart])
    cases = [case.label for case in MM.cases]
    together = [("mm", cases[0]), ("mm2", cases[0])]
    alone = [("apart", case) for case in cases]
    rest = [("late", cases[0])]
    rest += [(name, case) for case in cases[1:] for name in ("late", "mm", "mm2")]
    assert [(r.op, r.case) for r in done.runs] == together + alone + rest
    assert {g.family: g.processes for g in done.groups} == {"matmul": 2, "apart": 1}


def test_what_a_run_costs_is_told_by_what_it_went_into():
    started = time.monotonic()
    done = workload.execute(cpu(), [replace(MM, call=resting)])
    took = time.monotonic() - started
    parts = {"imports", "processes", "calls", "operands", "watching", "references", "comparing"}
    assert set(done.spent) == parts
    assert 3 * 2 * 0.1 <= done.spent["calls"] < 3 * 2 * 0.1 + 1
    assert 0.5 * took < sum(done.spent.values()) <= took


def resting(operands, case):
    time.sleep(0.1)
    return {"out": operands["a"] @ operands["b"]}


def printing(operands, case):
    os.write(2, b"'sm_120' is not a recognized processor for this target\n")
    return {"out": operands["a"] @ operands["b"]}


def test_what_a_library_prints_is_told_of_its_own_family():
    loud = replace(MM, name="loud", family="loud", call=printing, process=MM.family)
    done = workload.execute(cpu(), [MM, loud])
    said = {group.family: group.warnings for group in done.groups}
    assert said["matmul"] == ()
    assert said["loud"] == ("'sm_120' is not a recognized processor for this target",)


def test_without_time_everything_is_left_out_with_that_reason():
    done = workload.execute(cpu(budget=0), [MM])
    assert {r.outcome.status for r in done.runs} == {"not-applicable"}
    assert {r.message for r in done.runs} == {"left out: no time is left of 0 s"}
    assert len(done.runs) == 3


def test_a_budget_ends_what_is_running_and_keeps_what_was_done():
    slow = replace(MM, name="slow", family="slow", call=sleeping, deadline=60)
    started = time.monotonic()
    done = workload.execute(cpu(budget=15), [MM, slow, replace(slow, name="after")])
    assert time.monotonic() - started < 40
    by_name = {n: [r for r in done.runs if r.op == n] for n in ("mm", "slow", "after")}
    assert [len(each) for each in by_name.values()] == [3, 3, 3]
    assert all(r.holds for r in by_name["mm"])
    late = {r.message for r in (*by_name["slow"], *by_name["after"])}
    assert late == {"left out: no time is left of 15 s"}


def sleeping(operands, case):
    time.sleep(50)


def test_what_ends_process_after_process_is_given_up_alone():
    op = replace(MM, name="exits", call=planted.exits, cases=MM.cases * 2)
    done = workload.execute(cpu(), [op, MM])
    told = [r.message for r in done.runs if r.op == "exits"]
    assert told == ["ended with code 1: giving up"] * 3 + ["left out: exits ended 3 processes"] * 3
    assert [r.holds for r in done.runs if r.op == "mm"] == [True] * 3
    assert done.groups[0].processes == 4


def test_a_backward_pass_that_ends_its_process_keeps_the_forward_one():
    op = replace(planted.ATTENTION, call=exits_backward, cases=planted.ATTENTION.cases[:1])
    op = replace(op, dtypes={"fp32": op.dtypes["fp32"]})
    done = workload.execute(cpu(), [op])
    assert [(r.direction, r.outcome.status) for r in done.runs] == [
        ("forward", "ok"),
        ("backward", "exited"),
    ]


def exits_backward(operands, case):
    if operands["q"].requires_grad:
        os._exit(3)
    return planted.ATTENTION.call(operands, case)


def test_without_a_card_it_is_said_why():
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    done = workload.execute(ExecuteRequest(budget=60), [MM])
    assert done.card is None
    assert done.runs == ()
    assert done.torch == torch.__version__
    assert done.message


def test_a_line_that_was_cut_off_does_not_count(tmp_path):
    file = journal.Journal(str(tmp_path / "lines"))
    file.write("facts", {"torch": "2.9"})
    with open(file.path, "a", encoding="utf-8") as handle:
        handle.write(json.dumps(["run", {"op": "mm"}])[:9])
    assert file.lines() == [("facts", {"torch": "2.9"})]
    assert file.read() == ({"torch": "2.9"}, (), ())


MEASURED = Measured(output="out", dtype="float32", device="cuda", sha256="0", finite=True)


@pytest.mark.parametrize(
    ("facts", "holds"),
    [
        ({}, True),
        ({"worst": 1.0, "exact": True, "same_again": False}, True),
        ({"worst": 1.01}, False),
        ({"exact": False}, False),
        ({"finite": False}, False),
    ],
)
def test_when_an_output_holds(facts, holds):
    measured = replace(MEASURED, **facts)
    assert measured.holds is holds
    run = Run(
        op="mm",
        family="matmul",
        dtype="fp32",
        case="",
        direction="forward",
        seed=1,
        outcome=Outcome(status="ok"),
        outputs=(MEASURED, measured),
    )
    assert run.holds is holds
    assert not replace(run, outputs=()).holds
    assert not replace(run, outcome=Outcome(status="raised")).holds


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("'sm_120' is not a recognized processor for this target (ignoring processor)", True),
        ("cuDNN attention is not supported here, falling back to math", True),
        ("Skipping import of cpp extensions due to incompatible torch version", True),
        ("lazily initialised", False),
    ],
)
def test_which_warnings_matter(line, counts):
    assert bool(listening.telling([line])) is counts


def test_calls_of_the_api_are_not_taken_for_kernels():
    """The names are those that the profiler of torch 2.11 gave on an H200."""
    kernels = (
        "Memcpy DtoH (Device -> Pageable)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>",
    )
    others = ("cudaLaunchKernelExC", "Activity Buffer Request", "cudaDeviceSynchronize")
    assert listening.kernels_among((*others, *kernels, "cuLaunchKernelEx", *kernels)) == kernels


def resting_long(operands, case):
    time.sleep(0.7)
    return planted.MM.call(operands, case)


EXTENSION = """
import json, os, time
time.sleep(1)
with open({log!r}, "a") as handle:
    handle.write(json.dumps(["imported", {name!r}, os.getpid(), time.time()]) + "\\n")
{more}
"""


def extensions(folder, monkeypatch, **sources):
    """Return one operation for each module; it tells when it is called, and where."""
    monkeypatch.syspath_prepend(str(folder))
    log = str(folder / "log")
    made = []
    for name, more in sources.items():
        (folder / f"{name}.py").write_text(EXTENSION.format(log=log, name=name, more=more))

        def call(operands, case, name=name):
            __import__(name)
            with open(log, "a", encoding="utf-8") as handle:
                handle.write(json.dumps(["called", name, os.getpid(), time.time()]) + "\n")
            return planted.MM.call(operands, case)

        op = replace(MM, name=name, family=name, part="extensions", call=call)
        made.append(replace(op, cases=MM.cases[:1]))
    return made


def test_extensions_are_imported_ahead_in_the_process_that_calls_them(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(12))  # three at a time
    ops = extensions(tmp_path, monkeypatch, ext_a="", ext_b="", ext_c="")
    done = workload.execute(cpu(), [replace(MM, call=resting_long), *ops])
    assert all(r.holds for r in done.runs)
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    imported = {name: (pid, at) for what, name, pid, at in log if what == "imported"}
    first = {}
    for what, name, pid, at in log:
        if what == "called":
            first.setdefault(name, (pid, at))
    assert {name: pid for name, (pid, _) in imported.items()} == {
        name: pid for name, (pid, _) in first.items()
    }
    # All were there before any was called, and they were called one after another.
    assert max(at for _, at in imported.values()) < min(at for _, at in first.values())
    assert sorted(first, key=lambda name: first[name][1]) == ["ext_a", "ext_b", "ext_c"]


def test_an_extension_that_ends_its_process_when_it_is_imported_costs_its_own_runs(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(12))
    ops = extensions(tmp_path, monkeypatch, ext_d="os._exit(5)", ext_e="")
    done = workload.execute(cpu(), [MM, *ops])
    by_name = {r.op: r for r in done.runs}
    assert (by_name["ext_d"].outcome.status, by_name["ext_d"].outcome.code) == ("exited", 5)
    assert by_name["ext_e"].holds
    assert by_name["mm"].holds


def test_what_waits_for_its_turn_ends_when_there_is_no_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(12))
    ops = extensions(tmp_path, monkeypatch, ext_f="", ext_g="")
    slow = replace(MM, name="slow", call=sleeping, deadline=60)
    started = time.monotonic()
    done = workload.execute(cpu(budget=12), [slow, *ops])
    assert time.monotonic() - started < 40
    assert {r.message for r in done.runs} == {"left out: no time is left of 12 s"}
