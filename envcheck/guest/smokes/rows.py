"""Norms of rows as packages fuse them, compared as those of torch are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from envcheck.core.kernels import Dtype
from envcheck.guest.ops import normal
from envcheck.guest.ops.op import Case, Op, Tensors, dims
from envcheck.guest.ops.rules import in_fp32

EPSILON = normal.EPSILON
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 1.9 and 4.2"
CASES = (
    Case(sizes=dims(M=37, N=1024)),
    Case(sizes=dims(M=3, N=4096)),
    Case(sizes=dims(M=9, N=128), pattern="ones"),
    Case(sizes=dims(M=9, N=128), pattern="zeros"),
)
"""Sizes that every package takes: some load 16 bytes at a time."""


def norm(
    kind: str,
    name: str,
    family: str,
    call: Callable[[Tensors, Case], Tensors],
    *,
    dtypes: Mapping[str, Dtype] | None = None,
    gradients: tuple[str, ...] | None = None,
    deadline: int = 60,
) -> Op:
    """Return `layer_norm` or `rms_norm` of another package."""
    (plain,) = (op for op in normal.OPS if op.name == kind)
    return replace(
        plain,
        name=name,
        family=family,
        call=call,
        cases=CASES,
        dtypes=dtypes or in_fp32(SOURCE),
        gradients=plain.gradients if gradients is None else gradients,
        watched=True,
        deadline=deadline,
        atomics=("backward",),  # parts of a weight's gradient are added in any order
    )
