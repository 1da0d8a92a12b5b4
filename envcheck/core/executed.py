"""What running operations on one card left behind: facts about numbers, unjudged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envcheck.core.cards import Cards
from envcheck.core.collective import Collective
from envcheck.core.compiled import Outcome
from envcheck.core.rated import Rated

LEFT_OUT = "left out: "
"""How the reason begins for what was not run, though the card could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The card that everything ran on, as its driver and torch describe it."""

    name: str
    """`NVIDIA GeForce RTX 5090`."""
    sm: str
    """`sm_120`."""
    uuid: str
    """`GPU-...`, or `MIG-...` of a slice; empty where torch does not say."""
    total_memory: int
    """Bytes."""
    free_memory: int
    """Bytes, before anything ran."""
    driver: str | None
    """`580.65.06`; None where the driver's files do not say."""
    mig: bool
    """Whether it is a slice of a card."""
    shared_memory_per_block: int | None = None
    """Bytes that one block may use, opt-in; None where torch does not say."""
    first_kernel: float | None = None
    """Seconds until the first kernel was done, once torch was imported: the driver's start, and
    its JIT where there is only PTX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One output, compared with what float64 gives for the same operands.

    Of two calls with the same operands the worse one is told.
    """

    output: str
    """`out`, or `d_x` for the gradient with respect to the operand `x`."""
    dtype: str
    """`float16`."""
    device: str
    """Where the output was: `cuda` or, when the card was not what computed it, `cpu`."""
    sha256: str
    """Over the bytes of the first call's output, as a contiguous array: compares two cards."""
    finite: bool
    """Whether every element is a number, or is none where the reference is none too."""
    relative: float | None = None
    """Norm of the difference over the norm of the reference; None where it cannot be had."""
    worst: float | None = None
    """The worst element in units of its bound; None where no bound could be derived or where
    the output is not finite."""
    exact: bool | None = None
    """Whether it is what must come out to the last bit; None where roundings are allowed."""
    reference: str = "cpu"
    """Where float64 was computed: `cuda` where the CPU would have taken too long."""
    same_again: bool | None = None
    """Whether a second call gave the same bytes; None where there was none."""

    @property
    def holds(self) -> bool:
        """Whether the card computed what was asked for, as far as arithmetic allows."""
        bounded = self.worst is None or self.worst <= 1
        return self.finite and self.exact is not False and bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One operation, run once forward or backward (and once more to compare)."""

    op: str
    """`mm`."""
    family: str
    """`matmul`."""
    part: str = "ops"
    """`ops`, `triton`, `cuda` or `extensions`: what it belongs to."""
    dtype: str
    """Of the operands: `tf32` is fp32 that matrix units may shorten."""
    case: str
    """`M=301 N=517 K=1111 transposed`."""
    direction: str
    """`forward` or `backward`."""
    seed: int
    """Of the operands."""
    outcome: Outcome
    message: str = ""
    """The line that says why it failed; empty when it did not."""
    outputs: tuple[Measured, ...] = ()
    watched: bool = False
    """Whether it was looked at which kernels ran."""
    kernels: tuple[str, ...] = ()
    """Names of the kernels that ran on the card, where that was looked at."""
    warnings: tuple[str, ...] = ()
    """What torch said about falling back, skipping, or not recognizing something."""
    milliseconds: float | None = None
    """Of the second call, until the card was done."""
    first: float | None = None
    """Milliseconds of the first call, loading and compiling included; for a gradient also of the
    call before it that drew what flows back."""
    retained: int | None = None
    """Bytes of the card's memory that another call kept for good; None where it cannot be had."""
    source: str = ""
    """Where the rule of the bound is written."""
    deterministic: bool = True
    """Whether two calls are meant to give the same bytes; sums by atomics are not."""

    @property
    def was_left_out(self) -> bool:
        """Whether it was not run though the card could: for lack of time, memory or processes."""
        return self.outcome.status == "not-applicable" and self.message.startswith(LEFT_OUT)

    @property
    def holds(self) -> bool:
        """Whether it ran, and every output holds."""
        return self.outcome.ok and bool(self.outputs) and all(o.holds for o in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What the operations of one family cost."""

    family: str
    seconds: float
    """Of their own; what starting a process costs is in `Executed.spent`."""
    processes: int
    """Those that they ran in, together with others, and one more for each run that ended one."""
    warnings: tuple[str, ...] = ()
    """What was written to stderr about falling back, skipping, or not recognizing something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoked:
    """One extension that was tried, and which distributions that speaks for."""

    module: str
    """Its import name, which is the family of its runs."""
    distributions: tuple[str, ...] = ()
    """Normalised; empty for a function of the user's."""
    named: bool = False
    """Whether the user named the function that was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What ran on one card."""

    outcome: Outcome
    """Of the process that imported torch and started the others."""
    message: str = ""
    """Why it failed; empty when it did not."""
    parts: tuple[str, ...] = ("ops",)
    """Which were asked for: `ops`, `triton`, `cuda`, `extensions`."""
    budget: float = 0.0
    """Seconds that there were."""
    seconds: float = 0.0
    """That it took, all processes included."""
    cards: Cards | None = None
    """What the driver tells of all cards; None where it was not asked."""
    card: Card | None
    """None where none could be used."""
    torch: str | None
    """Version, None when it could not be imported."""
    cuda: str | None = None
    """Of the CUDA that torch was made with; None for a torch without."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What was set before every run, because it changes numbers."""
    smoked: tuple[Smoked, ...] = ()
    runs: tuple[Run, ...] = ()
    rated: Rated | None = None
    """None where nobody asked how fast the card multiplies."""
    collective: Collective | None = None
    """None where nobody asked what several cards do with one another."""
    groups: tuple[Group, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what they went into: `calls` are the operations themselves; `rating` and
    `exchanging` what measures cards, where that was asked for; `imports`,
    `processes`, `operands`, `watching` (kernels, memory), `references` and `comparing`
    (transfers and digests included) are what the check adds to them."""
