"""All operations, in order of value: what jobs use most, and what fails most often, first."""

from __future__ import annotations

from dataclasses import replace

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

_ALL = (
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

# All are torch's own: a process for each family would start the card and load libraries again.
OPS: tuple[Op, ...] = tuple(op if op.process else replace(op, process="torch") for op in _ALL)
