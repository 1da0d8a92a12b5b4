"""What an operation is: how it is called, and what must come out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envcheck.core.kernels import Config, Dtype
from envcheck.guest.operands import Operands

Tensor = Any
"""A torch.Tensor: torch is imported only where it is used."""
Tensors = Mapping[str, Tensor]
Expected = Mapping[str, Any]
"""`value`, `magnitude`, `terms` and perhaps `rounded`, as `operands.difference` takes them;
`exact` says that nothing but `value` may come out; without `magnitude` no bound is known."""


class NotApplicable(Exception):
    """Raised by an operation that has nothing to run here; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One problem that an operation is given."""

    sizes: Mapping[str, int]
    pattern: str = "random"
    """What the operands hold: one of `operands.PATTERNS`."""
    layout: str = "plain"
    """How they lie in memory: one of `layouts.LAYOUTS`."""
    config: Config | None = None
    """How a kernel is launched."""
    problem: str = ""
    """What of the configuration belongs to the problem: `HEAD=128 CAUSAL=0`."""
    only: tuple[str, ...] = ()
    """Dtypes that it is for; empty for all."""

    @property
    def label(self) -> str:
        """How reports name it: `M=301 N=517 K=1111 transposed`."""
        config = [self.config.label] if self.config is not None and self.config.constants else []
        return " ".join([*self._words(), *config])

    @property
    def drawn(self) -> str:
        """What its operands are drawn for: the same for all configurations of one problem."""
        return " ".join(filter(None, [*self._words(), self.problem]))

    def _words(self) -> list[str]:
        sizes = [f"{name}={size}" for name, size in self.sizes.items()]
        return sizes + [w for w in (self.pattern, self.layout) if w not in ("random", "plain")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation, as a value."""

    name: str
    family: str
    """Operations of one family share a process."""
    part: str = "ops"
    """Of `core.request.PARTS`."""
    dtypes: Mapping[str, Dtype]
    cases: tuple[Case, ...]
    inputs: Callable[[Case, Operands], Tensors]
    """Draws the operands; those whose name begins with `_` keep their place in memory."""
    call: Callable[[Tensors, Case], Tensors]
    """Computes on the device of the operands; returns the outputs by name."""
    reference: Callable[[Tensors, Case], Mapping[str, Expected]]
    """Says what must come out; takes the operands in float64 on the CPU, integers as they are,
    and `grad_<output>` for a backward pass, whose results it calls `d_<operand>`."""
    gradients: tuple[str, ...] = ()
    """Operands that get a gradient; none where there is no backward pass."""
    passes: tuple[str, ...] = ("forward", "backward")
    """Those that are run where there are gradients. A `backward` without a `forward` measures the
    outputs too: so it is with all cases but the first of a dtype, which halves what they cost."""
    apart: bool = False
    """Whether all cases have both passes, as other kernels run where no gradient is wanted."""
    exact: tuple[str, ...] = ("integers", "ones", "zeros")
    """Patterns with which no sum is rounded, so that the last bit is known."""
    watched: bool = False
    """Whether it matters which kernels run."""
    atomics: tuple[str, ...] = ()
    """Directions in which sums come in any order: two calls need not give the same bytes."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from `settings.PINNED` for it."""
    deadline: int = 30
    """Seconds for each case: what it loads and compiles at first included."""
    process: str = ""
    """Operations that name the same one may share a process; empty: those of one family may."""
    imports: tuple[str, ...] = ()
    """What torch imports when it is first called, if that takes seconds: it is imported while
    other operations run, and so is not run first."""

    def pairs(self, dtype: str) -> Sequence[Case]:
        """Return the cases for a dtype."""
        return [c for c in self.cases if not c.only or dtype in c.only]


def dims(**sizes: int) -> dict[str, int]:
    """Name the sizes of a case."""
    return sizes
