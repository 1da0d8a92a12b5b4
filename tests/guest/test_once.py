"""References that several configurations share, with PyTorch on the CPU."""

from __future__ import annotations

import pytest

from envcheck import catalog
from envcheck.core.kernels import Config
from envcheck.core.request import ExecuteRequest
from envcheck.guest import kernel_ops
from envcheck.guest.measuring import Task
from envcheck.guest.operands import Operands
from envcheck.guest.ops import once
from envcheck.guest.ops.op import Case

torch = pytest.importorskip("torch")


def config(block: int) -> Config:
    return Config(constants={"BLOCK": block}, num_warps=4, num_stages=1)


CASES = (
    Case(sizes={"N": 5}, config=config(16)),
    Case(sizes={"N": 5}, config=config(32)),
    Case(sizes={"N": 7}, config=config(16)),
)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[once.Once, list[str]]:
    calls: list[str] = []

    def reference(operands, case):
        calls.append(case.label)
        return {"out": {"value": operands["x"] * 2}}

    monkeypatch.setattr(once, "_WORTH_KEEPING", -1)
    return once.Once(reference, CASES), calls


def test_equal_operands_of_one_problem_are_worked_out_once(counted) -> None:
    shared, calls = counted
    x = torch.arange(5.0)
    first = shared({"x": x}, CASES[0])
    again = shared({"x": x.clone()}, CASES[1])
    assert calls == [CASES[0].label]
    assert again["out"]["value"].tolist() == first["out"]["value"].tolist() == [0, 2, 4, 6, 8]


def test_other_operands_are_worked_out_anew(counted) -> None:
    shared, calls = counted
    shared({"x": torch.arange(5.0)}, CASES[0])
    other = shared({"x": torch.arange(5.0) + 1}, CASES[1])
    assert other["out"]["value"].tolist() == [2, 4, 6, 8, 10]
    assert len(calls) == 2
    wider = shared({"x": torch.arange(5.0).double()}, CASES[1])
    assert wider["out"]["value"].dtype == torch.float64
    assert len(calls) == 3


def test_what_comes_once_is_not_kept(counted) -> None:
    shared, calls = counted
    for _ in range(2):
        shared({"x": torch.arange(7.0)}, CASES[2])
    assert len(calls) == 2


def test_configurations_of_a_shipped_kernel_get_one_problem_and_others_another() -> None:
    kernels = {k.name: k for k in catalog.load_all([catalog.shipped()])}
    request = ExecuteRequest(
        parts=("triton",),
        root=str(catalog.shipped()),
        kernels=(kernels["flash_attention"], kernels["matmul"]),
    )
    flash, matmul = kernel_ops.ops(request)
    seeds = {
        op.name: {
            (case.problem, Task(op=op, dtype="fp16", case=case, seed=1, device="cpu").own_seed)
            for case in op.pairs("fp16")
            if case.sizes == kernels[op.name].shapes[-1]
        }
        for op in (flash, matmul)
    }
    assert len(seeds["matmul"]) == 1
    assert (
        len(seeds["flash_attention"])
        == len({problem for problem, _ in seeds["flash_attention"]})
        > 1
    )
    one, other, *_ = (c for c in matmul.pairs("fp16") if c.sizes == kernels["matmul"].shapes[-1])
    drawn = [matmul.inputs(c, Operands("fp16", seed=3, device="cpu")) for c in (one, other)]
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[0])
