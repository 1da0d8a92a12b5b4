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


def on_card(operands: Tensors) -> bool:
    return operands["a"].device.type == "cuda"


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


def races(operands: Tensors, case: Case) -> Tensors:
    """Write on one stream what another one reads at once, as if nobody had to wait."""
    cuda, where = torch().cuda, torch().empty_like(product(operands))
    side = _side_stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        cuda._sleep(1 << 22)  # a few milliseconds of other work
        where.copy_(product(operands))
    return {"out": where + 0}


_STREAMS: list[object] = []


def _side_stream() -> object:
    _STREAMS[:] = _STREAMS or [torch().cuda.Stream()]
    return _STREAMS[0]


def wrong_the_second_time(operands: Tensors, case: Case) -> Tensors:
    a = operands["a"]
    a.calls = getattr(a, "calls", 0) + 1
    return {"out": product(operands) + (a.calls == 2)}


def falls_back(operands: Tensors, case: Case) -> Tensors:
    warnings.warn("the kernel is not available, falling back to the CPU", stacklevel=1)
    return {"out": (operands["a"].cpu() @ operands["b"].cpu()).to(operands["a"].device)}


def falls_back_silently(operands: Tensors, case: Case) -> Tensors:
    return {"out": (operands["a"].cpu() @ operands["b"].cpu()).to(operands["a"].device)}


def stays_on_the_cpu(operands: Tensors, case: Case) -> Tensors:
    return {"out": operands["a"].cpu() @ operands["b"].cpu()}


def keeps_its_outputs(operands: Tensors, case: Case) -> Tensors:
    _KEPT.append(product(operands))
    return {"out": _KEPT[-1]}


_KEPT: list[object] = []


def keeps_memory_of_the_driver(operands: Tensors, case: Case) -> Tensors:
    """Take memory that torch's allocator knows nothing of, as extensions do."""
    place = ctypes.c_void_p()
    assert ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(place), 4 << 20) == 0
    return {"out": product(operands)}


def no_number_for_constant_rows(operands: Tensors, case: Case) -> Tensors:
    out = _LAYER_NORM.call(operands, case)["out"]
    constant = operands["x"].amax(1) == operands["x"].amin(1)
    return {"out": out.masked_fill(constant[:, None], float("nan"))}


def no_backward_for_large_heads(operands: Tensors, case: Case) -> Tensors:
    if operands["q"].requires_grad and case.sizes["HEAD"] > 64:
        message = "head dimension must be at most 64 for the backward pass"
        raise RuntimeError(message)
    return _MATH.call(operands, case)


def says_that_it_holds(operands: Tensors, case: Case) -> Tensors:
    """Print what an answer looks like, through Python and past it."""
    answer = '["run", {"op": "mm", "outcome": {"status": "ok"}}]\n{"value": null}\n["end", null]'
    sys.stdout.write(answer + "\n")
    sys.stdout.flush()
    os.write(1, answer.encode())
    return drops_the_tail(operands, case)


def prints_but_computes(operands: Tensors, case: Case) -> Tensors:
    says_that_it_holds(operands, case)
    return {"out": product(operands)}


def hangs(operands: Tensors, case: Case) -> Tensors:
    if on_card(operands):
        torch().cuda._sleep(1 << 45)
        torch().cuda.synchronize()
    time.sleep(600)
    return {"out": product(operands)}


def exits(operands: Tensors, case: Case) -> Tensors:
    sys.stderr.write("giving up\n")
    os._exit(1)


def exits_as_programs_do(operands: Tensors, case: Case) -> Tensors:
    os.write(2, b"giving up\n")
    ctypes.CDLL(None).exit(1)
    return {}


def touches_what_is_not_there(operands: Tensors, case: Case) -> Tensors:
    """End in a segmentation fault."""
    ctypes.string_at(0)
    return {"out": product(operands)}


def poisons_the_context(operands: Tensors, case: Case) -> Tensors:
    """Trip an assertion on the card, after which nothing can be done there any more."""
    far = torch().tensor([1 << 40], device=operands["a"].device)
    return {"out": product(operands).flatten()[far]}


def takes_the_context_away(operands: Tensors, case: Case) -> Tensors:
    """Reset the card below torch, which only the next call notices."""
    out = product(operands)
    torch().cuda.synchronize()
    ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0)
    return {"out": out}


def broken(call: Callable[[Tensors, Case], Tensors], like: Op = MM, **more: object) -> Op:
    return replace(like, name=call.__name__.replace("_", " "), call=call, **more)


BROKEN: dict[str, Op] = {
    "drops the tail": broken(drops_the_tail),
    "zeros for one shape": broken(zeros_for_one_shape),
    "sums in bf16": broken(sums_in_bf16),
    "leaves a row out": broken(leaves_a_row_out),
    # Whoever stores few bits hides the last ones of a sum.
    "differs in the last bits": broken(
        differs_in_the_last_bits, dtypes={"fp32": MM.dtypes["fp32"]}
    ),
    "wrong the second time": broken(wrong_the_second_time),
    "falls back": broken(falls_back),
    "no number for constant rows": broken(no_number_for_constant_rows, NORM),
    "no backward for large heads": broken(no_backward_for_large_heads, ATTENTION),
    "says that it holds": broken(says_that_it_holds),
}
"""What comes to an end."""
ONLY_ON_A_CARD: dict[str, Op] = {
    "stays on the cpu": broken(stays_on_the_cpu),
    "falls back silently": broken(falls_back_silently, watched=True),
    "races": broken(races),
    "keeps its outputs": broken(keeps_its_outputs),
    "keeps memory of the driver": broken(keeps_memory_of_the_driver),
}
FATAL: dict[str, Op] = {
    "hangs": broken(hangs, deadline=2),
    "exits": broken(exits),
    "exits as programs do": broken(exits_as_programs_do),
    "touches what is not there": broken(touches_what_is_not_there),
}
"""What ends its process."""
FATAL_ON_A_CARD: dict[str, Op] = {
    "poisons the context": broken(poisons_the_context),
    "takes the context away": broken(takes_the_context_away),
}
"""What leaves its process unusable."""
GOOD: dict[str, Op] = {
    "mm": replace(MM, watched=True),
    "layer_norm": NORM,
    "sdpa-math": replace(ATTENTION, watched=True),
    "prints but computes": broken(prints_but_computes),
}

EXPECTED: dict[str, set[str]] = {
    "drops the tail": {"out of bounds", "not exact"},
    "zeros for one shape": {"out of bounds"},
    "sums in bf16": {"out of bounds"},
    "differs in the last bits": {"unsteady"},
    "wrong the second time": {"out of bounds", "not exact", "unsteady"},
    "falls back": {"warned"},
    "no number for constant rows": {"not finite"},
    "no backward for large heads": {"raised"},
    "says that it holds": {"out of bounds", "not exact"},
    "stays on the cpu": {"elsewhere"},
    "falls back silently": {"no kernel"},
    "keeps its outputs": {"leaks"},
    "keeps memory of the driver": {"leaks"},
    "hangs": {"timed-out"},
    "exits": {"exited"},
    "exits as programs do": {"exited"},
    "touches what is not there": {"crashed"},
    "poisons the context": {"raised"},
}
"""As which it must be caught; what reads memory that holds anything is caught as one of several."""
ONE_OF: dict[str, set[str]] = {
    "leaves a row out": {"out of bounds", "not finite"},
    "races": {"out of bounds", "not finite"},
    "takes the context away": {"raised", "crashed", "exited"},
}


def suspicions(runs: Iterable[Run], device: str) -> set[str]:
    """Return what the facts hold against an operation."""
    found = set()
    for run in runs:
        found |= {run.outcome.status} - {"ok", "not-applicable"}
        found |= {"leaks"} if run.retained else set()
        found |= {"warned"} if run.warnings else set()
        computing = [k for k in run.kernels if not k.startswith(("Memcpy", "Memset"))]
        found |= {"no kernel"} if run.watched and not computing else set()
        for output in run.outputs:
            found |= {"not finite"} if not output.finite else set()
            found |= {"not exact"} if output.exact is False else set()
            found |= {"out of bounds"} if (output.worst or 0) > 1 else set()
            found |= {"elsewhere"} if output.device != device else set()
            found |= {"unsteady"} if run.deterministic and output.same_again is False else set()
    return found


def caught(name: str, found: set[str]) -> bool:
    """Say whether a fault was caught as what it is."""
    if name in ONE_OF:
        return bool(found & ONE_OF[name])
    return found >= EXPECTED[name]
