"""What a card does beside computing: graphs, copies, streams; and code compiled while it runs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS, SUMS, exactly, in_fp32, only
from envcheck.guest.ops.torches import claim, held, moved, torch


def _draw_product(case: Case, draw: Operands) -> Tensors:
    m, n, k = (case.sizes[name] for name in "MNK")
    return {"a": draw.values(m, k), "b": draw.values(k, n), "c": draw.values(n)}


@functools.cache
def _side() -> Any:
    """Return one stream for all captures: cuBLAS keeps memory for each stream that it has seen."""
    return torch().cuda.Stream()


def _replayed(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    """Capture a product of ones, then replay it on the operands."""
    a, b, c = (operands[n] for n in "abc")
    if a.device.type != "cuda":
        return {"out": torch().addmm(c, a, b)}
    given = torch().ones_like(a)
    graph, side = torch().cuda.CUDAGraph(), _side()
    side.wait_stream(torch().cuda.current_stream())
    with torch().cuda.stream(side):
        torch().addmm(c, given, b)  # a library may not be loaded for the first time in a capture
    torch().cuda.current_stream().wait_stream(side)
    with torch().cuda.graph(graph):
        out = torch().addmm(c, given, b)
    given.copy_(a)
    out.fill_(float("nan"))
    graph.replay()
    return {"out": out.clone()}


def _product(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": operands["c"] + operands["a"] @ operands["b"]}


def _product_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    return {"out": case.sizes["K"] + 2}


def _before_the_bias(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": (operands["a"] @ operands["b"]).abs()}


GRAPH = Op(
    name="cuda-graph",
    family="device",
    dtypes=only(MATRIX_UNITS, "fp32", "bf16"),
    cases=(
        Case(sizes=dims(M=67, N=129, K=260)),
        Case(sizes=dims(M=33, N=65, K=77), pattern="integers"),
    ),
    inputs=_draw_product,
    call=_replayed,
    reference=linear.reference(_product, _product_terms, kept=_before_the_bias),
)


def _draw_bytes(case: Case, draw: Operands) -> Tensors:
    return {"_x": draw.values(case.sizes["BYTES"])}


def _copied(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    """Bring bytes to the host and back through pinned memory, on another stream."""
    x = operands["_x"]
    if x.device.type != "cuda":
        return {"there and back": x.clone(), "on the card": x.clone()}
    host = torch().full(x.shape, 0x55, dtype=x.dtype, pin_memory=True)
    back = torch().full_like(x, 0x55)
    stream = torch().cuda.Stream()
    stream.wait_stream(torch().cuda.current_stream())
    with torch().cuda.stream(stream):
        host.copy_(x, non_blocking=True)
        back.copy_(host, non_blocking=True)
    torch().cuda.current_stream().wait_stream(stream)
    return {"there and back": back, "on the card": x.clone()}


def _same(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"there and back": operands["_x"], "on the card": operands["_x"]}


COPY = Op(
    name="pinned-copy",
    family="device",
    dtypes=exactly("int8"),
    cases=tuple(Case(sizes=dims(BYTES=size)) for size in (1, 4097, 4_194_329)),
    inputs=_draw_bytes,
    call=_copied,
    reference=moved(_same),
    exact=("random",),
)


def _draw_numbers(case: Case, draw: Operands) -> Tensors:
    return {"x": draw.values(case.sizes["N"])}


def _ordered(operands: Tensors, case: Case) -> Tensors:
    """Add to a tensor from two streams in turn, kept in order by events alone."""
    total = operands["x"].clone()
    if total.device.type != "cuda":
        return {"out": total + case.sizes["TURNS"]}
    streams = [torch().cuda.Stream() for _ in range(2)]
    done = torch().cuda.Event()
    done.record()
    for turn in range(case.sizes["TURNS"]):
        with torch().cuda.stream(streams[turn % 2]):
            done.wait()
            total += 1
            done = torch().cuda.Event()
            done.record()
    done.wait()
    return {"out": total}


def _counted(operands: Tensors, case: Case) -> Tensors:
    return {"out": operands["x"] + case.sizes["TURNS"]}


STREAMS = Op(
    name="streams-and-events",
    family="device",
    dtypes=exactly("int32"),
    cases=(Case(sizes=dims(N=1_000_003, TURNS=9)),),
    inputs=_draw_numbers,
    call=_ordered,
    reference=moved(_counted),
    exact=("random",),
)


def _draw_rows(case: Case, draw: Operands) -> Tensors:
    rows, columns = case.sizes["M"], case.sizes["N"]
    return {"x": draw.values(rows, columns), "w": draw.values(columns), "b": draw.values(columns)}


def _formula(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return ((x * w + b) * x).sum(-1)


def _compiled(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    """Compile in one graph or not at all; the caller has set a cache that is empty."""
    counters = importlib.import_module("torch._dynamo.utils").counters
    with importlib.import_module("torch._inductor.config").patch({"compile_threads": 1}):
        out = torch().compile(_formula, fullgraph=True)(*(operands[n] for n in "xwb"))
    fell_back = sum(counters["graph_break"].values())
    compiled = counters["stats"]["unique_graphs"] > 0
    return {"out": out, "it is what was compiled": claim(compiled and not fell_back, out)}


def _plain(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    return {"out": _formula(*(operands[n] for n in "xwb"))}


def _plain_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    rows, columns = case.sizes["M"], case.sizes["N"]
    return {"out": columns + 3, "d_x": 4, "d_w": rows + 3, "d_b": rows + 3}


def _compiled_whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    whole = linear.reference(_plain, _plain_terms, ("x", "w", "b"))
    return {**whole(operands, case), "it is what was compiled": held()}


COMPILE = Op(
    name="torch-compile",
    family="compile",
    dtypes=only(in_fp32(SUMS), "fp32"),
    cases=(Case(sizes=dims(M=131, N=517)),),
    inputs=_draw_rows,
    call=_compiled,
    reference=_compiled_whole,
    gradients=("x", "w", "b"),
    passes=("backward",),
    deadline=180,
    imports=("torch._dynamo", "torch._inductor.compile_fx"),
)

OPS = (GRAPH, COPY, STREAMS, COMPILE)
