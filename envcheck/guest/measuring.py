"""One operation on one card: called twice, forward and backward, and compared with float64."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from envcheck.core.compiled import Outcome
from envcheck.core.executed import LEFT_OUT, Measured, Run
from envcheck.core.kernels import Tolerance
from envcheck.guest import listening, words
from envcheck.guest.comparing import compare, digest, on_cpu, same_bytes, whole
from envcheck.guest.later import Later
from envcheck.guest.memory import poison, retained, synchronize
from envcheck.guest.operands import Operands
from envcheck.guest.ops import settings
from envcheck.guest.ops.layouts import arranged
from envcheck.guest.ops.op import Case, Expected, NotApplicable, Op, Tensor, Tensors
from envcheck.guest.ops.torches import torch
from envcheck.guest.spent import Spent

_MANY = 1 << 24
"""Elements of all operands beyond which the CPU takes seconds for a reference; none of the
catalogue has a quarter of that, sizes of jobs may."""
_SWITCH = 0.0005
"""Seconds."""
_KEPT = {-4: 0, -1: (1 << 31) - 1, -8: 1}
"""M_MMAP_MAX, M_TRIM_THRESHOLD and M_ARENA_MAX of glibc's malloc.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One case of one operation for one dtype."""

    op: Op
    dtype: str
    case: Case
    seed: int
    device: str

    def run(self, direction: str, outcome: Outcome, **facts: Any) -> Run:
        """Return what is known of a run of it."""
        return Run(
            op=self.op.name,
            family=self.op.family,
            part=self.op.part,
            dtype=self.dtype,
            case=self.case.label,
            direction=direction,
            seed=self.own_seed,
            outcome=outcome,
            message=words.reason(outcome),
            source=self.rule.source,
            deterministic=direction not in self.op.atomics,
            **facts,
        )

    @property
    def rule(self) -> Tolerance:
        """How far off an output may be."""
        return self.op.dtypes[self.dtype].tolerance

    @property
    def own_seed(self) -> int:
        """Of the operands: that of the workload, mixed with the names."""
        text = f"{self.seed} {self.op.name} {self.dtype} {self.case.drawn}"
        return zlib.crc32(text.encode())

    @property
    def directions(self) -> tuple[str, ...]:
        """Which runs it comes to."""
        if not self.op.gradients:
            return ("forward",)
        first = self.case == self.op.pairs(self.dtype)[0]
        return self.op.passes if first or self.op.apart else self.op.passes[-1:]


def start(device: str, *, threads: int) -> None:
    """Make the card ready, and let references take so many threads at most."""
    _keep_pages()
    # The thread that works references out gives the interpreter up with each operation, and
    # would get it back after Python's usual 5 ms.
    sys.setswitchinterval(_SWITCH)
    torch().set_num_threads(min(threads, torch().get_num_threads()))
    if device == "cuda":
        torch().cuda.init()
        torch().zeros(1, device=device)
        synchronize(device)


def _keep_pages() -> None:
    """Have the C library keep what is freed: new pages were a quarter of the cost of references."""
    with contextlib.suppress(OSError, AttributeError):  # there are others than glibc
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _KEPT.items():
            mallopt(option, value)


def measure(task: Task, spent: Spent | None = None) -> Iterator[Run]:
    """Yield the runs of a task, each when it is done; adds up what was spent on them."""
    spent = spent or Spent()
    torch().manual_seed(task.own_seed)
    tf32 = settings.TF32 if task.dtype == "tf32" else {}
    settings.pin({**settings.PINNED, **tf32, **task.op.settings})
    for direction in task.directions:
        started = time.monotonic()
        try:
            with listening.to_warnings() as heard:
                facts = _Measurement(task, spent).facts(direction)
            yield task.run(direction, _took("ok", started), warnings=tuple(heard), **facts)
        except NotApplicable as error:
            yield task.run(direction, Outcome(status="not-applicable", error=str(error)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this run's outcome
            outcome = _took("raised", started)
            text = f"{type(error).__name__}: {error}"[:2000]
            yield task.run(direction, replace(outcome, error=text))


def _took(status: str, started: float) -> Outcome:
    return Outcome(status=status, milliseconds=round((time.monotonic() - started) * 1000))


class _Measurement:
    """The operands of a task, and what is done with them."""

    def __init__(self, task: Task, spent: Spent) -> None:
        self.task, self.spent, op, case = task, spent, task.op, task.case
        self.referred = "cpu"
        kind = "fp32" if task.dtype == "tf32" else task.dtype
        self.draw = Operands(kind, seed=task.own_seed, pattern=case.pattern, device=task.device)
        with spent.on("operands"):
            self.operands = {
                name: tensor if name.startswith("_") else arranged(tensor, case.layout)
                for name, tensor in op.inputs(case, self.draw).items()
            }

    def facts(self, direction: str) -> dict[str, Any]:
        """Call twice, once more to watch where it matters, and compare."""
        call: Callable[[], Tensors] = self._forward
        given: Tensors = {}
        before = 0.0
        if direction == "backward":
            given, before = self._timed(self._given)
            call = partial(self._backward, given)
        first, first_took = self._timed(call)
        # Not before: a call that ends the process by `exit` must find no other thread at work.
        with self._reference(given) as reference:
            second, took = self._timed(call)
            watched = self._is_watched()
            with self.spent.on("watching"):
                kernels = listening.to_kernels(call) if watched else ()
                kept = retained(call) if self.task.device == "cuda" else None
            with self.spent.on("references"):
                expected = reference.value()
        with self.spent.on("comparing"):
            outputs = tuple(
                self._compare(name, first[name], second[name], expected[name]) for name in first
            )
        return {
            "outputs": outputs,
            "watched": watched,
            "kernels": kernels,
            "retained": kept,
            "milliseconds": took,
            "first": round(before + first_took, 3),
        }

    def _is_watched(self) -> bool:
        """Say whether to watch for kernels: what operands hold chooses none, so once for each."""
        case = self.task.case
        wanted = self.task.device == "cuda" and self.task.op.watched and case.pattern == "random"
        # Where an operand is empty there may be nothing for any kernel to do.
        return wanted and all(map(_numel, self.operands.values()))

    def _forward(self) -> Tensors:
        with torch().no_grad():
            return self.task.op.call(self.operands, self.task.case)

    def _leaves(self) -> dict[str, Tensor]:
        names = self.task.op.gradients
        return {
            n: t.detach().requires_grad_() if n in names else t for n, t in self.operands.items()
        }

    def _given(self) -> dict[str, Tensor]:
        """Draw what flows back into each output that has a gradient."""
        outputs = self.task.op.call(self._leaves(), self.task.case)
        return {
            f"grad_{name}": self.draw.values(*out.shape).to(out.dtype)
            for name, out in outputs.items()
            if out.requires_grad
        }

    def _backward(self, given: Tensors) -> Tensors:
        leaves, names = self._leaves(), self.task.op.gradients
        outputs = self.task.op.call(leaves, self.task.case)
        found = torch().autograd.grad(
            [outputs[n.removeprefix("grad_")] for n in given],
            [leaves[n] for n in names],
            list(given.values()),
        )
        parts = {f"d_{name}": part for name, part in zip(names, found, strict=True)}
        if "forward" in self.task.directions:
            return parts
        return {**{name: out.detach() for name, out in outputs.items()}, **parts}

    def _timed(self, call: Callable[[], Tensors]) -> tuple[Tensors, float]:
        with self.spent.on("watching"):
            poison(self.task.device)
        started = time.perf_counter()
        with self.spent.on("calls"):
            outputs = call()
            synchronize(self.task.device)
        return outputs, round((time.perf_counter() - started) * 1000, 3)

    def _reference(self, given: Tensors) -> Later[Mapping[str, Expected]]:
        """Return the reference in float64.

        It is computed on the CPU, aside from what the card does, as long as that does not take
        too long; else on the card when it is asked for.
        """
        tensors = {**self.operands, **given}
        if sum(map(_numel, tensors.values())) > _MANY:
            self.referred = self.task.device
            return Later(partial(self._expected, tensors))
        # Copied here: while a graph is captured, no other thread may ask anything of the card.
        reference = Later(partial(self._expected, whole(tensors, "cpu")))
        reference.start()
        return reference

    def _expected(self, tensors: Tensors) -> Mapping[str, Expected]:
        where = self.referred
        try:
            # What a reference makes itself, such as a mask, must lie where its operands do.
            with torch().device(where):
                expected = self.task.op.reference(whole(tensors, where), self.task.case)
        except torch().OutOfMemoryError as error:
            message = (
                f"{LEFT_OUT}its float64 reference does not fit into the card's memory: {error}"
            )
            raise NotApplicable(message[:300]) from None
        return (
            {name: on_cpu(each) for name, each in expected.items()} if where != "cpu" else expected
        )

    def _compare(self, name: str, first: Tensor, second: Tensor, expected: Expected) -> Measured:
        numbers, again = first.detach().cpu(), same_bytes(first, second)
        exactly = self.task.case.pattern in self.task.op.exact or expected.get("exact", False)
        found = [
            compare(each, expected, self.task.rule, exactly=exactly)
            for each in ((numbers,) if again else (numbers, second))
        ]
        worst = max(found, key=lambda f: (not f["finite"], f["exact"] is False, f["worst"] or 0))
        return Measured(
            output=name,
            dtype=str(first.dtype).removeprefix("torch."),
            device=first.device.type,
            sha256=digest(numbers),
            same_again=again,
            reference=self.referred,
            **worst,
        )


def _numel(tensor: Tensor) -> int:
    count: int = tensor.numel()
    return count
