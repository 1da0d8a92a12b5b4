"""All operations, in order of value: what jobs use most, and what fails most often, first."""

from __future__ import annotations

from envcheck.guest.ops import (
    activations,
    attention,
    convolution,
    device,
    factors,
    libraries,
    matmul,
    normal,
    places,
    reductions,
    training,
)
from envcheck.guest.ops.op import Op

OPS: tuple[Op, ...] = (
    *matmul.OPS,
    *attention.OPS,
    *training.OPS,
    *convolution.OPS,
    *normal.OPS,
    *activations.OPS,
    *device.OPS,
    *places.OPS,
    *reductions.OPS,
    *libraries.OPS,
    *factors.OPS,
)
