"""gsplat: the shapes of Gaussians from their rotations and scales."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import alone
from envcheck.guest.ops.torches import torch
from envcheck.guest.smokes.smoke import Smoke

_NAME = "gsplat"


def _draw(case: Case, draw: Operands) -> Tensors:
    count = case.sizes["N"]
    # A rotation has no length near zero, which could not be normalised.
    turns = draw.values(count, 4) + draw.values(count, 4).sign() * 0.5
    return {"turns": turns, "scales": draw.positive(count, 3)}


def _covariances(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    shape = importlib.import_module(_NAME).quat_scale_to_covar_preci
    turns, scales = operands["turns"].contiguous(), operands["scales"].contiguous()
    found, _ = shape(turns, scales, compute_covar=True, compute_preci=False, triu=False)
    return {"out": found}


def _rotated(turns: Tensor, sign: float) -> Tensor:
    """Return matrices of unit quaternions (w, x, y, z); with sign 1 the sizes that go in."""
    w, x, y, z = turns.unbind(-1)
    rows = (
        (1 + sign * 2 * (y * y + z * z), 2 * (x * y + sign * w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 + sign * 2 * (x * x + z * z), 2 * (y * z + sign * w * x)),
        (2 * (x * z + sign * w * y), 2 * (y * z + w * x), 1 + sign * 2 * (x * x + y * y)),
    )
    return torch().stack([torch().stack(row, -1) for row in rows], -2)


def _squared(turns: Tensor, scales: Tensor, sign: float) -> Tensor:
    stretched = _rotated(turns, sign) * scales[:, None]
    return stretched @ stretched.mT


def _whole(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    """Return R S S R' (Kerbl et al. 2023, section 4), R the matrix of the normalised rotation.

    Normalising takes 8 roundings of each component, an element of R two components and four
    roundings more, the product with a scale one, and an element of the result two of these and
    four more: 46.
    """
    turns, scales = operands["turns"], operands["scales"]
    turns = turns / turns.norm(dim=-1, keepdim=True)
    value, size = _squared(turns, scales, -1.0), _squared(turns.abs(), scales, 1.0)
    return {"out": {"value": value, "magnitude": size, "terms": 46}}


COVARIANCES = Op(
    name="gsplat.quat_scale_to_covar_preci",
    family=_NAME,
    dtypes=alone("Higham 3.1: at most 46 roundings for each element"),
    cases=(Case(sizes=dims(N=1027)), Case(sizes=dims(N=1))),
    inputs=_draw,
    call=_covariances,
    reference=_whole,
    exact=(),
    watched=True,
    deadline=300,  # nvcc builds what was not built when the package was installed
)

SMOKE = Smoke(module=_NAME, distributions=("gsplat",), ops=(COVARIANCES,), tried=True)
