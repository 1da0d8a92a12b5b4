"""What is measured of an output that is right, slightly wrong, or nothing at all."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="outputs are torch tensors")

from envcheck.core.kernels import Tolerance  # noqa: E402
from envcheck.guest.operands import Operands, difference  # noqa: E402

RULE = Tolerance(accumulate="fp32", source="a book")


def expected(value, terms=1, **more):
    value = torch.tensor(value, dtype=torch.float64)
    return {"value": value, "magnitude": value.abs(), "terms": terms, **more}


def test_the_unit_is_the_bound_of_the_rule():
    """By hand: 1 rounding of fp32 at 1.0, and half a unit of fp16 for the store."""
    bound = 2**-24 + 2**-11 + 2**-25
    out = torch.tensor([1.0 + 2**-10], dtype=torch.float16)  # the next number of fp16
    found = difference(out, expected([1.0]), RULE)
    assert found.worst == pytest.approx(2**-10 / bound)
    assert found.relative == pytest.approx(2**-10)


def test_many_roundings_grow_as_the_root():
    out = torch.tensor([1.0 + 2**-20], dtype=torch.float32)
    one = difference(out, expected([1.0], terms=1), RULE).worst
    many = difference(out, expected([1.0], terms=4096), RULE).worst
    assert one == pytest.approx(2**-20 / 2**-23, rel=1e-3)  # a rounding and the store
    assert many == pytest.approx(2**-20 / (513 * 2**-24), rel=1e-3)


def test_what_passes_through_the_operand_format_counts_by_its_own_size():
    rule = Tolerance(accumulate="exact", operand="bf16", source="a book")
    out = torch.tensor([1.0 + 2**-8], dtype=torch.float32)
    rounded = torch.tensor([0.5], dtype=torch.float64)
    assert difference(out, expected([1.0]), rule).worst == pytest.approx(1, rel=1e-4)
    half = difference(out, expected([1.0], rounded=rounded), rule)
    assert half.worst == pytest.approx(2, rel=1e-4)


def test_equal_is_zero_even_where_the_bound_is_zero():
    rule = Tolerance(accumulate="exact", source="a book")
    out = torch.tensor([3, 4], dtype=torch.int32)
    assert difference(out, expected([3.0, 4.0]), rule).worst == 0
    assert difference(out, expected([3.0, 5.0]), rule).worst == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_none_is_infinitely_wrong(value):
    out = torch.tensor([1.0, value])
    found = difference(out, expected([1.0, 2.0]), RULE)
    assert (found.relative, found.worst) == (math.inf, math.inf)


def test_zeros_for_numbers_and_numbers_for_zeros_are_wrong():
    assert difference(torch.zeros(3), expected([1.0, 2.0, 3.0]), RULE).worst > 1e6
    assert difference(torch.ones(3), expected([0.0, 0.0, 0.0]), RULE).worst > 1e6


def test_an_empty_output_is_not_wrong():
    empty = torch.zeros(0)
    assert difference(empty, expected([]), RULE).worst == 0


def test_operands_come_from_their_seed_and_pattern():
    def draw(pattern="random", seed=1, dtype="fp16"):
        return Operands(dtype, seed=seed, pattern=pattern, device="cpu")

    assert torch.equal(draw().values(100), draw().values(100))
    assert not torch.equal(draw().values(100), draw(seed=2).values(100))
    assert draw().values(2, 3).dtype == torch.float16
    assert draw().values(2, 3, dtype="fp32").dtype == torch.float32
    assert draw(dtype="fp8e4nv").values(5).dtype == torch.float8_e4m3fn
    assert set(draw("ones").values(9).tolist()) == {1.0}
    assert set(draw("zeros").values(9).tolist()) == {0.0}
    integers = draw("integers").values(1000)
    assert set(integers.tolist()) == {-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0}
    assert draw(dtype="int8").values(10_000).unique().numel() == 255
    assert 0 <= draw("ones").positive(1000).min() < draw("ones").positive(1000).max() <= 1
    labels = draw("zeros").integers(0, 5, 1000)
    assert set(labels.tolist()) == {0, 1, 2, 3, 4}
    assert labels.dtype == torch.int32
