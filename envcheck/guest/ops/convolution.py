"""Convolutions: cuDNN, whose parts load late, one for each kind of algorithm."""

from __future__ import annotations

from dataclasses import replace

from envcheck.guest.operands import Operands
from envcheck.guest.ops import linear
from envcheck.guest.ops.op import Case, Op, Tensor, Tensors, dims
from envcheck.guest.ops.rules import MATRIX_UNITS
from envcheck.guest.ops.torches import functional

_GRADIENTS = ("x", "w", "b")
_SIX_SIGMA = 6.0
_PLAIN = ("fp32", "fp16", "bf16")


def _draw(case: Case, draw: Operands) -> Tensors:
    s = case.sizes
    space = _space(case)
    kernel = (s["K"],) * len(space)
    turned = s.get("TRANSPOSED")
    first, second = (s["C"], s["O"]) if turned else (s["O"], s["C"])
    return {
        "x": draw.values(s["N"], s["C"], *space),
        "w": draw.values(first, second // s.get("G", 1), *kernel),
        "b": draw.values(s["O"]),
    }


def _space(case: Case) -> tuple[int, ...]:
    return tuple(case.sizes[name] for name in "DHW" if name in case.sizes)


def _convolve(operands: Tensors, case: Case) -> dict[str, Tensor]:
    s = case.sizes
    turned = "_transpose" if s.get("TRANSPOSED") else ""
    convolve = getattr(functional(), f"conv{turned}{len(_space(case))}d")
    options = {"stride": s.get("S", 1), "padding": s.get("P", 0), "groups": s.get("G", 1)}
    if not turned:
        options["dilation"] = s.get("DILATION", 1)
    return {"out": convolve(operands["x"], operands["w"], operands["b"], **options)}


def _terms(operands: Tensors, case: Case) -> dict[str, int]:
    s, gradient = case.sizes, operands.get("grad_out")
    window = s["K"] ** len(_space(case))
    groups = s.get("G", 1)
    # All of a gradient's elements but its channels take part in the sum for one weight.
    places = gradient.numel() // s["O"] if gradient is not None else 1
    return {
        "out": s["C"] // groups * window + 1,
        "d_x": s["O"] // groups * window,
        "d_w": max(places, operands["x"].numel() // s["C"]),
        "d_b": places,
    }


def _kept(operands: Tensors, case: Case) -> dict[str, Tensor]:
    """Return what is stored on the way: the sum without the bias, and parts of a gradient.

    cuDNN adds up the gradient of an input channel by channel where the result lies. Parts of
    a sum of independent terms lie within six standard deviations of zero.
    """
    plain = {**operands, "b": 0 * operands["b"]}
    squares = {name: tensor.square() for name, tensor in plain.items()}
    spread = linear.both_ways(_convolve, squares, case, _GRADIENTS)
    found = {"out": _convolve(plain, case)["out"].abs()}
    if "d_x" in spread:
        found["d_x"] = _SIX_SIGMA * spread["d_x"].sqrt()
    return found


CONV = Op(
    name="conv",
    family="convolution",
    dtypes=MATRIX_UNITS,
    cases=(
        Case(sizes=dims(N=3, C=37, O=41, H=19, W=23, K=3, P=1)),
        Case(sizes=dims(N=2, C=64, O=64, H=28, W=28, K=3, P=1), layout="channels-last"),
        Case(sizes=dims(N=2, C=3, O=17, H=61, W=59, K=7, S=2, P=3)),
        Case(sizes=dims(N=4, C=66, O=35, H=13, W=11, K=1), layout="transposed", only=_PLAIN),
        Case(sizes=dims(N=2, C=36, O=24, H=17, W=15, K=3, G=4, P=1)),
        Case(sizes=dims(N=2, C=35, O=35, H=17, W=15, K=5, G=35, P=2)),
        Case(
            sizes=dims(N=2, C=35, O=35, H=17, W=15, K=3, G=35), layout="channels-last", only=_PLAIN
        ),
        Case(sizes=dims(N=1, C=20, O=12, H=25, W=27, K=3, DILATION=2), only=_PLAIN),
        Case(sizes=dims(N=2, C=22, O=14, H=9, W=11, K=4, S=2, P=1, TRANSPOSED=1)),
        Case(sizes=dims(N=3, C=19, O=33, W=301, K=9, P=4)),
        Case(sizes=dims(N=2, C=33, O=33, W=127, K=4, G=33), only=_PLAIN),
        Case(sizes=dims(N=2, C=11, O=13, D=7, H=9, W=11, K=3, P=1)),
        Case(sizes=dims(N=2, C=16, O=8, D=5, H=8, W=9, K=3), layout="channels-last", only=_PLAIN),
        Case(sizes=dims(N=2, C=5, O=7, H=9, W=9, K=3), pattern="ones", only=_PLAIN),
        Case(sizes=dims(N=2, C=5, O=7, H=9, W=9, K=3), pattern="zeros", only=_PLAIN),
        Case(sizes=dims(N=0, C=5, O=7, H=9, W=9, K=3), only=_PLAIN),
    ),
    inputs=_draw,
    call=_convolve,
    reference=linear.reference(_convolve, _terms, _GRADIENTS, _kept),
    gradients=_GRADIENTS,
    # Algorithms after Winograd multiply by fractions, so even whole numbers are rounded.
    exact=("zeros",),
    atomics=("forward", "backward"),
)

# The first search for the fastest algorithm runs what the heuristics would not choose.
SEARCHED = replace(
    CONV,
    name="conv-benchmark",
    dtypes={name: MATRIX_UNITS[name] for name in ("bf16", "fp32")},
    cases=CONV.cases[:2],
    settings={"cudnn.benchmark": True},
)

OPS = (CONV, SEARCHED)
