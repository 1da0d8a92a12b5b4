"""Numbers that are looked up, moved, put together and sorted."""

from __future__ import annotations

from dataclasses import replace

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import exactly, in_fp32, only, summed_as_kept
from envcheck.guest.ops.torches import claim, functional, moved, torch

_CASES = (
    Case(sizes=dims(ROWS=1009, D=67, TAKEN=513)),
    Case(sizes=dims(ROWS=33, D=128, TAKEN=4099)),
    Case(sizes=dims(ROWS=257, D=33, TAKEN=129), layout="offset"),
    Case(sizes=dims(ROWS=1, D=1, TAKEN=1)),
    Case(sizes=dims(ROWS=65, D=31, TAKEN=300), pattern="integers"),
    Case(sizes=dims(ROWS=65, D=31, TAKEN=0)),
)
_KINDS = ("fp32", "fp16", "bf16", "int32")
_ATOMICS = "Higham 3.1: one rounding for each number that is added, in whatever order"


def _draw(case: Case, draw: Operands) -> Tensors:
    rows, width, taken = (case.sizes[n] for n in ("ROWS", "D", "TAKEN"))
    return {
        "x": draw.values(rows, width),
        "source": draw.values(taken, width),
        "_rows": draw.integers(0, rows, taken).long(),
    }


def _embedding(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"out": functional().embedding(operands["_rows"], operands["x"])}


def _how_often(operands: Tensors) -> int:
    rows = operands["_rows"]
    return int(rows.bincount().max()) if rows.numel() else 1


def _embedding_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    return {"out": 0, "d_x": _how_often(operands)}


def _gather(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    x, rows = operands["x"], operands["_rows"]
    picked = rows[:, None].expand(-1, x.shape[1])
    return {
        "index_select": x.index_select(0, rows),
        "index": x[rows],
        "gather": x.gather(0, picked),
        "masked": x[x > 0],
        "flip": x.flip(0, 1),
        "roll": x.roll((3, -5), (0, 1)),
        "cat": torch().cat((x, operands["source"])),
        "transposed": x.t().contiguous(),
        "where": torch().where(x > 0, x, -x),
    }


def _scatter(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    x, rows, source = operands["x"], operands["_rows"], operands["source"]
    picked = rows[:, None].expand(-1, x.shape[1])
    return {
        "index_add": x.index_add(0, rows, source),
        "scatter_add": x.scatter_add(0, picked, source),
        "index_put": x.index_put((rows,), source, accumulate=True),
    }


def _scatter_terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    return dict.fromkeys(("index_add", "scatter_add", "index_put"), _how_often(operands) + 1)


def _highest(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    x, rows, source = operands["x"], operands["_rows"], operands["source"]
    picked = rows[:, None].expand(-1, x.shape[1])
    return {"amax": x.scatter_reduce(0, picked, source, "amax")}


def _sort(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    x, rows = operands["x"], operands["_rows"]
    ordered, places = x.sort(dim=1, stable=True)
    count = (x.shape[1] + 2) // 3
    top, at = x.topk(count, 1)
    numbers, counts = rows.unique(return_counts=True)
    flat = x.flatten().sort().values
    return {
        "sorted": ordered,
        "places": places,
        "flat": flat,
        "topk": top,
        "topk is at its places": claim(x.gather(1, at).equal(top), x),
        "unique": numbers,
        "counts": counts,
        "searchsorted": torch().searchsorted(flat, x.flatten()[:999].contiguous()),
    }


_MOVED = ("random", "integers")
EMBEDDING = Op(
    name="embedding",
    family="places",
    dtypes=summed_as_kept("Higham 3.1: gradients of one row are added in the row's own type"),
    cases=_CASES,
    inputs=lambda case, draw: {n: t for n, t in _draw(case, draw).items() if n != "source"},
    call=_embedding,
    reference=linear.reference(_embedding, _embedding_terms, ("x",)),
    gradients=("x",),
    exact=(),
    atomics=("backward",),
)
GATHER = Op(
    name="gather",
    family="places",
    dtypes=exactly(*_KINDS),
    cases=_CASES,
    inputs=_draw,
    call=_gather,
    reference=moved(_gather),
    exact=_MOVED,
)
SCATTER = Op(
    name="scatter-add",
    family="places",
    dtypes=only(in_fp32(_ATOMICS), "fp32") | exactly("int32"),
    cases=_CASES,
    inputs=_draw,
    call=_scatter,
    reference=linear.reference(_scatter, _scatter_terms),
    exact=("integers",),
    atomics=("forward",),
)
HIGHEST = replace(
    GATHER, name="scatter-amax", call=_highest, reference=moved(_highest), dtypes=exactly(*_KINDS)
)
SORT = replace(
    GATHER, name="sort", call=_sort, reference=moved(_sort), cases=_CASES[:3] + _CASES[4:5]
)

OPS = (EMBEDDING, GATHER, SCATTER, HIGHEST, SORT)
