"""What `kernels/<name>/kernel.toml` says: a kernel's dtypes, configurations and tolerances.

Beside it lies `kernel.py`, which imports no torch when it is loaded, with these functions:

- `compilations(dtype, config)`, for Triton: a mapping for each function that `launch` starts,
  with `fn`, `signature` (argument: type), `constexprs`, and `divisible`: the arguments that
  divide by 16, as they do for aligned pointers and even sizes;
- `inputs(shape, config, draw)`: the operands by name, drawn from an `Operands`;
- `launch(operands, config)`: runs it and returns the outputs by name, which start as values
  that nothing computes; of a CUDA kernel the built library must have been loaded;
- `reference(operands, config)`: for each output `value` in float64, `magnitude`, `terms` and
  perhaps `rounded`, which are explained next. `config` is `Config.values`.

A tolerance is a rule, not a number. For each element of an output, with `n` the number of
roundings in its longest chain (the kernel's reference says it) and `|.|` the magnitude that
flows through the computation (the same formula with every term's absolute value):

    |out - ref| <= growth(n) u_accumulate |.| + u_operand |.| + u_store |ref| + least_store

u is the unit roundoff of a format: `store` of the type that the output has in memory,
`operand` of the type that an intermediate result takes before it is multiplied again, where
there is one. growth(n) = min(n, 8 sqrt(n)): the first is
the classic bound (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1), the
second holds with probability 1 - 2n exp(-32) (Higham and Mary, A New Approach to
Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019, theorem 2.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

KINDS = ("triton", "cuda")

DTYPES = ("fp32", "fp16", "bf16", "fp8e4nv", "int8", "int32")
"""Names of the operands' types, as Triton spells them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How finely numbers are kept somewhere: in memory or while they are summed up."""

    roundoff: float
    """The largest relative error of one rounding."""
    least: float
    """The largest absolute error near zero, where the relative one means nothing."""


FORMATS = {
    "exact": Format(roundoff=0.0, least=0.0),
    "fp32": Format(roundoff=2.0**-24, least=2.0**-126),  # may flush subnormal numbers to zero
    # Tensor cores sum products in fp32 by truncation, not by rounding (Fasi, Higham, Mikaitis
    # and Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ CS 7, 2021).
    "fp32-truncated": Format(roundoff=2.0**-23, least=2.0**-126),
    # Those for fp8 keep 13 bits of mantissa (SageAttention2, arXiv 2411.10958, section 3.2).
    "fp22-truncated": Format(roundoff=2.0**-13, least=2.0**-126),
    # Matrix units read 10 bits of an operand's mantissa (PTX ISA, wmma with .tf32); what is
    # below them may be cut off, of each of the two operands of a product.
    "tf32-operands": Format(roundoff=2.0**-9, least=0.0),
    "fp16": Format(roundoff=2.0**-11, least=2.0**-25),
    "bf16": Format(roundoff=2.0**-8, least=2.0**-126),
    # Four bits of exponent and three of mantissa (OCP 8-bit Floating Point Specification, 5.1).
    "fp8e4nv": Format(roundoff=2.0**-4, least=0.0),
    # Codes of a few bits: half of the widest gap between two of them, in units of the largest
    # number (or, for int4, of the range) of the block that shares a scale.
    "int8-codes": Format(roundoff=0.5 / 127, least=0.0),
    "int4-codes": Format(roundoff=0.5 / 15, least=0.0),
    # Between -1 and the next code (QLoRA, arXiv 2305.14314, appendix E).
    "nf4-codes": Format(roundoff=(1 - 0.6961928009986877) / 2, least=0.0),
    # 64 codes from 0.1 to 1, and 1 itself (8-bit optimizers, arXiv 2110.02861, section 1.3).
    "dynamic8-codes": Format(roundoff=0.9 / 64 / 2, least=0.0),
}


def growth(roundings: int) -> float:
    """Return how many unit roundoffs a chain of so many roundings may come to."""
    return min(float(roundings), 8 * math.sqrt(roundings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The rule for one dtype; formats are names of FORMATS."""

    accumulate: str
    """In which the kernel computes."""
    operand: str = "exact"
    """Which an intermediate result takes before it is multiplied again."""
    source: str
    """Where that is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """One type of operands that a kernel is written for."""

    min_sm: str
    """`sm_89`: the least that has instructions for it."""
    tolerance: Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One way to launch a Triton kernel, as an autotuner would list it."""

    constants: Mapping[str, int]
    """Block sizes and other compile-time constants, by the names of the kernel's arguments."""
    num_warps: int
    num_stages: int
    dtypes: tuple[str, ...] = ()
    """Those it is for; empty for all."""

    @property
    def label(self) -> str:
        """How reports name it: `BLOCK_M=128 BLOCK_N=256 num_warps=8 num_stages=4`."""
        return " ".join(f"{name}={value}" for name, value in self.values.items())

    @property
    def values(self) -> dict[str, int]:
        """All of it in one mapping, which is what a kernel's functions take."""
        return {**self.constants, "num_warps": self.num_warps, "num_stages": self.num_stages}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One folder of kernels, as its `kernel.toml` describes it."""

    name: str
    """That of the folder."""
    kind: str
    """`triton` or `cuda`."""
    purpose: str
    """What it computes and which faults it is good at showing."""
    dtypes: Mapping[str, Dtype]
    configs: tuple[Config, ...] = ()
    """Empty for `cuda`, whose block sizes are compiled in."""
    shapes: tuple[Mapping[str, int], ...]
    """Problem sizes to run, by the names of the kernel's dimensions; most divide by nothing."""
    problem: tuple[str, ...] = ()
    """Constants that the problem sets, such as a head's size: no autotuner may choose another."""
    sources: tuple[str, ...] = ()
    """What to compile, for `cuda`."""
    digest: str
    """`sha256:` + digest over the folder's files: their names and bytes."""

    def problem_of(self, config: Config) -> str:
        """Return what of a configuration is the problem's: `HEAD=128 CAUSAL=0`."""
        return " ".join(f"{name}={config.constants[name]}" for name in self.problem)

    def pairs(self) -> tuple[tuple[str, Config], ...]:
        """Return each dtype with each configuration that is for it."""
        return tuple((d, c) for d in self.dtypes for c in self.configs if d in (c.dtypes or [d]))
