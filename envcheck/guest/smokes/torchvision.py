"""torchvision: non-maximum suppression and pooled regions, which have kernels of their own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import alone, exactly
from envcheck.guest.ops.torches import sure, torch
from envcheck.guest.smokes.smoke import Smoke

_SUMS = "Higham 3.1: one rounding for each product and sum; the places are exact fractions"
_THRESHOLD = 0.5


def _ops() -> Any:
    return importlib.import_module("torchvision.ops")


def _draw_boxes(case: Case, draw: Operands) -> Tensors:
    """Draw boxes with whole corners, whose overlap fp32 compares with 1/2 without an error."""
    count = case.sizes["BOXES"]
    corners, sizes = draw.integers(0, 200, count, 2), draw.integers(1, 60, count, 2)
    boxes = torch().cat((corners, corners + sizes), 1).float()
    # No two scores are equal, so that there is one order only.
    return {"boxes": boxes, "scores": draw.positive(count).argsort().argsort().float()}


def _nms(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    return {"kept": _ops().nms(operands["boxes"], operands["scores"], _THRESHOLD)}


def _kept(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    """Keep the best box of those left and drop what overlaps it by more than half, until none is."""
    boxes = operands["boxes"]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    low = torch().maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch().minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    close = shared > _THRESHOLD * (areas[:, None] + areas - shared)
    gone = torch().zeros(len(boxes), dtype=torch().bool)
    kept = []
    for index in operands["scores"].argsort(descending=True).tolist():
        if not gone[index]:
            kept.append(index)
            gone |= close[index]
    return {"kept": sure(torch().tensor(kept))}


NMS = Op(
    name="torchvision.nms",
    family="torchvision",
    dtypes=exactly("fp32"),
    cases=(Case(sizes=dims(BOXES=517)), Case(sizes=dims(BOXES=65)), Case(sizes=dims(BOXES=1))),
    inputs=_draw_boxes,
    call=_nms,
    reference=_kept,
    watched=True,
)

_BINS, _SAMPLES, _SCALE = 4, 2, 0.25
"""Powers of two, so that every place of a sample is an exact fraction."""


def _draw_regions(case: Case, draw: Operands) -> Tensors:
    s = case.sizes
    image = draw.integers(0, s["N"], s["REGIONS"], 1)
    corner = draw.integers(0, int(s["SIZE"] / _SCALE) - 33, s["REGIONS"], 2)
    regions = torch().cat((image, corner, corner + draw.integers(1, 33, s["REGIONS"], 2)), 1)
    return {"x": draw.values(s["N"], s["C"], s["SIZE"], s["SIZE"]), "_regions": regions.float()}


def _roi_align(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - idem
    pooled = _ops().roi_align(
        operands["x"], operands["_regions"], _BINS, _SCALE, _SAMPLES, aligned=True
    )
    return {"out": pooled}


def _between(places: Tensor, size: int) -> Tensor:
    """Return the weight of each pixel of a row for each place (He et al. 2017, bilinear)."""
    places = places.clamp(0, size - 1)
    pixels = torch().arange(size, dtype=places.dtype)
    return (1 - (places[..., None] - pixels).abs()).clamp(min=0)


def _pooled(operands: Tensors, case: Case) -> Tensors:
    """Average the samples of each bin; those beyond the border are clamped to it."""
    regions, size = operands["_regions"].double(), case.sizes["SIZE"]
    low, high = regions[:, 1:3] * _SCALE - 0.5, regions[:, 3:5] * _SCALE - 0.5
    steps = (torch().arange(_BINS * _SAMPLES, dtype=low.dtype) + 0.5) / (_BINS * _SAMPLES)
    places = low[..., None] + (high - low)[..., None] * steps
    across, down = _between(places[:, 0], size), _between(places[:, 1], size)
    chosen = operands["x"][regions[:, 0].long()]
    samples = torch().einsum("rcyx,rpy,rqx->rcpq", chosen, down, across)
    return {"out": torch().nn.functional.avg_pool2d(samples, _SAMPLES)}


def _terms(operands: Tensors, case: Case) -> dict[str, int]:  # noqa: ARG001 - idem
    # Four products and sums for each sample; of a gradient, all samples may meet in one pixel.
    samples = len(operands["_regions"]) * (_BINS * _SAMPLES) ** 2
    return {"out": 6 * _SAMPLES**2 + 4, "d_x": samples + 8}


ROI_ALIGN = Op(
    name="torchvision.roi_align",
    family="torchvision",
    dtypes=alone(_SUMS),
    cases=(
        Case(sizes=dims(N=2, C=5, SIZE=25, REGIONS=37)),
        Case(sizes=dims(N=1, C=3, SIZE=33, REGIONS=1), pattern="ones"),
        Case(sizes=dims(N=1, C=3, SIZE=33, REGIONS=9), pattern="zeros"),
    ),
    inputs=_draw_regions,
    call=_roi_align,
    reference=linear.reference(_pooled, _terms, ("x",)),
    gradients=("x",),
    exact=("zeros",),
    atomics=("backward",),
    watched=True,
)

SMOKE = Smoke(
    module="torchvision", distributions=("torchvision",), ops=(NMS, ROI_ALIGN), tried=True
)
