"""torchaudio: a recursive filter and a forced alignment, which have kernels of their own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from envcheck.guest.operands import Operands
from envcheck.guest.ops.op import Case, Expected, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import alone
from envcheck.guest.ops.torches import claim, held, torch
from envcheck.guest.smokes.smoke import Smoke

_AHEAD, _BACK = (0.5, 0.25, 0.125), (0.5, -0.25)
"""What the filter takes of three inputs and of two outputs before; poles within 0.5."""
_SOURCE = "Higham 3.1: at most 10 roundings for each output, which flow into the next ones"


def _audio() -> Any:
    return importlib.import_module("torchaudio.functional")


def _draw_wave(case: Case, draw: Operands) -> Tensors:
    return {"x": draw.values(case.sizes["CHANNELS"], case.sizes["T"])}


def _lfilter(operands: Tensors, case: Case) -> Tensors:  # noqa: ARG001 - as every op's
    x = operands["x"]
    back, ahead = (x.new_tensor(c) for c in ((1.0, *(-c for c in _BACK)), (*_AHEAD,)))
    return {"out": _audio().lfilter(x, back, ahead, clamp=False)}


def _moving(x: Tensor) -> Tensor:
    padded = torch().nn.functional.pad(x, (2, 0))
    return sum(c * padded[:, 2 - n : padded.shape[1] - n] for n, c in enumerate(_AHEAD))


def _recursive(x: Tensor, back: tuple[float, float]) -> Tensor:
    before, last, outputs = 0 * x[:, 0], 0 * x[:, 0], []
    for each in x.unbind(1):
        before, last = last, each + back[0] * last + back[1] * before
        outputs.append(last)
    return torch().stack(outputs, 1)


def _bounded(x: Tensor) -> Expected:
    """Return the filtered signal; an error made at one output goes through the recursion too."""
    sizes = (abs(_BACK[0]), abs(_BACK[1]))
    flow = _recursive(_moving(x.abs()), sizes)
    return {
        "value": _recursive(_moving(x), _BACK),
        "magnitude": _recursive(flow, sizes),
        "terms": 10,
    }


def _filtered(operands: Tensors, case: Case) -> Mapping[str, Expected]:  # noqa: ARG001 - idem
    found = {"out": _bounded(operands["x"])}
    if "grad_out" in operands:  # the same filter, backwards in time
        turned = _bounded(operands["grad_out"].flip(1))
        found["d_x"] = {n: t.flip(1) if n != "terms" else t for n, t in turned.items()}
    return found


LFILTER = Op(
    name="torchaudio.lfilter",
    family="torchaudio",
    dtypes=alone(_SOURCE),
    cases=(
        Case(sizes=dims(CHANNELS=3, T=1027)),
        Case(sizes=dims(CHANNELS=1, T=33)),
        Case(sizes=dims(CHANNELS=2, T=129), pattern="zeros"),
    ),
    inputs=_draw_wave,
    call=_lfilter,
    reference=_filtered,
    gradients=("x",),
    exact=("zeros",),
    watched=True,
)

_LABELS = 9
"""Label 0 is the blank."""


def _draw_frames(case: Case, draw: Operands) -> Tensors:
    length, words = case.sizes["T"], case.sizes["WORDS"]
    return {
        "x": draw.values(1, length, _LABELS).log_softmax(-1),
        "_targets": draw.integers(1, _LABELS, 1, words),
    }


def _align(operands: Tensors, case: Case) -> Tensors:
    frames, targets = operands["x"], operands["_targets"]
    path, scores = _audio().forced_align(frames, targets, blank=0)
    path, wanted = path[0].tolist(), targets[0].tolist()
    merged = [label for n, label in enumerate(path) if n == 0 or label != path[n - 1]]
    told = frames[0].gather(1, torch().tensor(path, device=frames.device)[:, None])[:, 0]
    return {
        "score": scores[0].sum().reshape(1),
        "the path spells the targets": claim([w for w in merged if w] == wanted, frames),
        "the scores are those of the path": claim(told.equal(scores[0]), frames),
        "every frame has a label": claim(len(path) == case.sizes["T"], frames),
    }


def _best(operands: Tensors, case: Case) -> Mapping[str, Expected]:
    """Return the score of the best path (Graves et al. 2006, with maxima in place of sums)."""
    frames, targets = operands["x"][0], operands["_targets"][0].tolist()
    states = [0]
    for label in targets:
        states += [label, 0]
    never = frames.new_tensor(float("-inf"))
    best = [frames[0, state] if n < 2 else never for n, state in enumerate(states)]
    for frame in frames[1:]:
        after = []
        for n, state in enumerate(states):
            sources = best[max(n - 1, 0) : n + 1]
            if n > 1 and state not in (0, states[n - 2]):
                sources = [*sources, best[n - 2]]
            after.append(torch().stack(sources).max() + frame[state])
        best = after
    value = torch().stack(best[-2:]).max().reshape(1)
    # Every path adds up as many logarithms, whose size is that of the sum: none is positive.
    return {
        "score": {"value": value, "magnitude": value.abs(), "terms": 2 * case.sizes["T"]},
        "the path spells the targets": held(),
        "the scores are those of the path": held(),
        "every frame has a label": held(),
    }


FORCED_ALIGN = Op(
    name="torchaudio.forced_align",
    family="torchaudio",
    dtypes=alone("Higham 4.2: one rounding for each logarithm that is added"),
    cases=(Case(sizes=dims(T=101, WORDS=13)), Case(sizes=dims(T=33, WORDS=1))),
    inputs=_draw_frames,
    call=_align,
    reference=_best,
    exact=(),
    watched=True,
)

SMOKE = Smoke(
    module="torchaudio", distributions=("torchaudio",), ops=(LFILTER, FORCED_ALIGN), tried=True
)
