"""The rules of tolerance that several families share, each with where it is written."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.core.kernels import Dtype, Tolerance

SUMS = "Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.5 (inner products)"
CUT = "as fp32, with the truncation of Fasi, Higham, Mikaitis and Pranesh 2021"

MATRIX_UNITS = {
    "fp32": Dtype(min_sm="sm_50", tolerance=Tolerance(accumulate="fp32", source=SUMS)),
    "tf32": Dtype(
        min_sm="sm_80",
        tolerance=Tolerance(accumulate="fp32-truncated", operand="tf32-operands", source=CUT),
    ),
    "fp16": Dtype(min_sm="sm_70", tolerance=Tolerance(accumulate="fp32-truncated", source=CUT)),
    "bf16": Dtype(min_sm="sm_80", tolerance=Tolerance(accumulate="fp32-truncated", source=CUT)),
}
"""For products of matrices, which add up in fp32."""


def in_fp32(source: str, *, through: bool = False) -> dict[str, Dtype]:
    """Return the rules of what is computed in fp32, in whatever type it is kept.

    With `through` an intermediate result takes the type of the operands, too.
    """
    return {
        name: Dtype(
            min_sm="sm_80" if name == "bf16" else "sm_50",
            tolerance=Tolerance(
                accumulate="fp32",
                operand=name if through else "exact",
                source=source if name == "fp32" else f"{source}; rounded once on store",
            ),
        )
        for name in ("fp32", "fp16", "bf16")
    }


def summed_as_kept(source: str) -> dict[str, Dtype]:
    """Return the rules of sums whose parts take the type of the result in between."""
    return {
        name: Dtype(
            min_sm="sm_80" if name == "bf16" else "sm_50",
            tolerance=Tolerance(accumulate=name, source=source),
        )
        for name in ("fp32", "fp16", "bf16")
    }


def only(rules: Mapping[str, Dtype], *names: str) -> dict[str, Dtype]:
    """Return some of the rules."""
    return {name: rules[name] for name in names}


def alone(source: str) -> dict[str, Dtype]:
    """Return the rule of what is computed in fp32 and kept in it, and in no other type."""
    return only(in_fp32(source), "fp32")


def exactly(*names: str) -> dict[str, Dtype]:
    """Return the rule of what only moves numbers, for operands of these dtypes."""
    rule = Tolerance(accumulate="exact", source="nothing is computed, so nothing is rounded")
    return {
        name: Dtype(min_sm="sm_80" if name == "bf16" else "sm_50", tolerance=rule) for name in names
    }
