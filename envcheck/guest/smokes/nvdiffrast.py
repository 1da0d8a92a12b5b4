"""nvdiffrast: a square of two triangles is drawn, and its corners' attributes between them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensors, dims
from envcheck.guest.ops.rules import alone
from envcheck.guest.ops.torches import claim, held, torch
from envcheck.guest.smokes.smoke import Smoke

_NAME = "nvdiffrast"
_CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
_TRIANGLES = ((0, 1, 2), (0, 2, 3))


def _draw(case: Case, draw: Operands) -> Tensors:
    # Attributes that are linear over the square: the two triangles agree on their border.
    return {"slopes": draw.values(3, case.sizes["ATTRIBUTES"])}


def _drawn(operands: Tensors, case: Case) -> Tensors:
    package = importlib.import_module("nvdiffrast.torch")
    slopes, size = operands["slopes"], case.sizes["SIZE"]
    corners = slopes.new_tensor(_CORNERS)
    ones = torch().ones_like(corners[:, :1])
    place = torch().cat((corners, 0 * ones, ones), 1)[None].contiguous()
    triangles = torch().tensor(_TRIANGLES, dtype=torch().int32, device=slopes.device)
    attributes = (corners[:, :1] * slopes[0] + corners[:, 1:] * slopes[1] + slopes[2])[None]
    context = package.RasterizeCudaContext(device=slopes.device)
    covered, _ = package.rasterize(context, place, triangles, resolution=[size, size])
    out, _ = package.interpolate(attributes.contiguous(), covered, triangles)
    return {"out": out[0], "every pixel is covered": claim((covered[..., 3] > 0).all(), slopes)}


def _whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return the linear function at the centres of the pixels.

    Three roundings make an attribute of a corner, at most ten a weight between corners from
    the edges' equations, whose terms are smaller than 4, and five the sum of three products.
    """
    slopes, size = operands["slopes"], case.sizes["SIZE"]
    centres = (2 * torch().arange(size, dtype=slopes.dtype) + 1) / size - 1
    x, y = centres[None, :, None], centres[:, None, None]
    largest = slopes.abs().sum(0)
    return {
        "out": {
            "value": x * slopes[0] + y * slopes[1] + slopes[2],
            "magnitude": (4 * 3 * largest).expand(size, size, -1),
            "terms": 18,
        },
        "every pixel is covered": held(),
    }


SQUARE = Op(
    name="nvdiffrast.rasterize",
    family=_NAME,
    dtypes=alone("Higham 3.1: at most 18 roundings for each pixel"),
    cases=(Case(sizes=dims(SIZE=64, ATTRIBUTES=3)), Case(sizes=dims(SIZE=256, ATTRIBUTES=1))),
    inputs=_draw,
    call=_drawn,
    reference=_whole,
    exact=(),
    watched=True,
    deadline=300,  # nvcc builds what was not built when the package was installed
)

SMOKE = Smoke(module=_NAME, distributions=("nvdiffrast",), ops=(SQUARE,), tried=False)
