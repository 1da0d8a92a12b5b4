"""Operations that are broken on purpose, each in a way that was seen in the field."""

from __future__ import annotations

import ctypes
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace

from envcheck.core.executed import Run
from envcheck.guest.ops import attention, matmul, normal
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.torches import torch

# A child of a process whose OpenMP threads have run once would wait for them for ever.
torch().set_num_threads(1)

MM = replace(
    matmul.MM,
    gradients=(),
    watched=False,
    cases=(
        Case(sizes=dims(M=33, N=65, K=301)),
        Case(sizes=dims(M=65, N=33, K=129)),
        Case(sizes=dims(M=17, N=31, K=77), pattern="integers"),
    ),
)
"""Good, and small enough for a CPU."""
(_LAYER_NORM,) = (op for op in normal.OPS if op.name == "layer_norm")
NORM = replace(
    _LAYER_NORM,
    gradients=(),
    cases=(Case(sizes=dims(M=9, N=131)), Case(sizes=dims(M=9, N=131), pattern="ones")),
)
(_MATH,) = (op for op in attention.OPS if op.name == "sdpa-math")
ATTENTION = replace(
    _MATH,
    watched=False,
    cases=tuple(Case(sizes=dims(Z=1, H=2, T=37, HEAD=h, CAUSAL=1)) for h in (64, 128)),
)


def product(operands: Tensors) -> object:
    return operands["a"] @ operands["b"]


def drops_the_tail(operands: Tensors, case: Case) -> Tensors:
    whole = case.sizes["K"] // 32 * 32
    return {"out": operands["a"][:, :whole] @ operands["b"][:whole]}


def zeros_for_one_shape(operands: Tensors, case: Case) -> Tensors:
    out = product(operands)
    return {"out": out * 0 if case.sizes["M"] == 65 else out}


def sums_in_bf16(operands: Tensors, case: Case) -> Tensors:
    a, b = operands["a"].bfloat16(), operands["b"].bfloat16()
    out = torch().zeros(len(a), b.shape[1], dtype=a.dtype, device=a.device)
    for start in range(0, case.sizes["K"], 16):
        out += a[:, start : start + 16] @ b[start : start + 16]
    return {"out": out.to(operands["a"].dtype)}


def leaves_a_row_out(operands: Tensors, case: Case) -> Tensors:
    out = product(operands)
    place = torch().empty_like(out)
    place[:-1] = out[:-1]
    return {"out": place}


def differs_in_the_last_bits(operands: Tensors, case: Case) -> Tensors:
    order = torch().randperm(case.sizes["K"], device=operands["a"].device)
    return {"out": operands["a"][:, order] @ operands["b"][order]}


def wrong_the_second_time() -> Callable[[Tensors, Case], Tensors]:
    calls = []

    def call(operands: Tensors, case: Case) -> Tensors:
        calls.append(case)
        return {"out": product(operands) + (calls.count(case) == 2)}

    return call


def falls_back(operands: Tensors, case: Case) -> Tensors:
    warnings.warn("the kernel is not available, falling back to the CPU", stacklevel=1)
    return {"out": (operands["a"].cpu() @ operands["b"].cpu()).to(operands["a"].device)}


def stays_on_the_cpu(operands: Tensors, case: Case) -> Tensors:
    return {"out": operands["a"].cpu() @ operands["b"].cpu()}


def keeps_its_outputs() -> Callable[[Tensors, Case], Tensors]:
    kept = []

    def call(operands: Tensors, case: Case) -> Tensors:
        kept.append(product(operands))
        return {"out": kept[-1]}

    return call


def no_number_for_constant_rows(operands: Tensors, case: Case) -> Tensors:
    out = _LAYER_NORM.call(operands, case)["out"]
    constant = operands["x"].amax(1) == operands["x"].amin(1)
    return {"out": out.masked_fill(constant[:, None], float("nan"))}


def no_backward_for_large_heads(operands: Tensors, case: Case) -> Tensors:
    if operands["q"].requires_grad and case.sizes["HEAD"] > 64:
        message = "head dimension must be at most 64 for the backward pass"
        raise RuntimeError(message)
    return _MATH.call(operands, case)


def hangs(operands: Tensors, case: Case) -> Tensors:
    if operands["a"].device.type == "cuda":
        torch().cuda._sleep(1 << 45)
        torch().cuda.synchronize()
    time.sleep(600)
    return {"out": product(operands)}


def exits(operands: Tensors, case: Case) -> Tensors:
    sys.stderr.write("giving up\n")
    os._exit(1)


def touches_what_is_not_there(operands: Tensors, case: Case) -> Tensors:
    if operands["a"].device.type == "cuda":
        far = torch().tensor([1 << 40], device="cuda")
        return {"out": product(operands).flatten()[far]}
    ctypes.string_at(0)
    return {"out": product(operands)}


BROKEN: dict[str, Op] = {
    "drops the tail": replace(MM, call=drops_the_tail),
    "zeros for one shape": replace(MM, call=zeros_for_one_shape),
    "sums in bf16": replace(MM, call=sums_in_bf16),
    "leaves a row out": replace(MM, call=leaves_a_row_out),
    "race": replace(MM, call=differs_in_the_last_bits),
    "wrong the second time": replace(MM, call=wrong_the_second_time()),
    "falls back": replace(MM, call=falls_back),
    "no number for constant rows": replace(NORM, call=no_number_for_constant_rows),
    "no backward for large heads": replace(ATTENTION, call=no_backward_for_large_heads),
}
"""What comes to an end."""
ONLY_ON_A_CARD: dict[str, Op] = {
    "stays on the cpu": replace(MM, call=stays_on_the_cpu),
    "leaks": replace(MM, call=keeps_its_outputs()),
}
FATAL: dict[str, Op] = {
    "hangs": replace(MM, call=hangs, deadline=2),
    "exits": replace(MM, call=exits),
    "touches what is not there": replace(MM, call=touches_what_is_not_there),
}
"""What ends its process, or leaves it unusable."""


def suspicions(runs: Iterable[Run], device: str) -> set[str]:
    """Return what the facts hold against an operation."""
    found = set()
    for run in runs:
        found |= {run.outcome.status} - {"ok", "not-applicable"}
        found |= {"leaks"} if run.retained else set()
        found |= {"warned"} if run.warnings else set()
        for output in run.outputs:
            found |= {"not finite"} if not output.finite else set()
            found |= {"not exact"} if output.exact is False else set()
            found |= {"out of bounds"} if (output.worst or 0) > 1 else set()
            found |= {"elsewhere"} if output.device != device else set()
            found |= {"unsteady"} if run.deterministic and output.same_again is False else set()
    return found
