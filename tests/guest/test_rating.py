"""Rates and burn on the processor, with products that are broken on purpose."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the products are torch's")

import planted  # noqa: E402
import planted_products as products  # noqa: E402

from envcheck.core import codec  # noqa: E402
from envcheck.core.executed import Executed  # noqa: E402
from envcheck.core.rated import Rated  # noqa: E402
from envcheck.core.request import ExecuteRequest  # noqa: E402
from envcheck.core.sm import Sm  # noqa: E402
from envcheck.guest import burning, rating, workload  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = 128  # rows 0 and 64 + 37 of it are compared with float64


def soon() -> float:
    return time.monotonic() + 0.2


def test_a_good_product_gives_the_same_bits_and_the_right_ones():
    done = burning.burn("bf16", SIZE, "cpu", soon())
    assert (done.mismatches, done.first, done.finite, done.rows) == (0, None, True, 2)
    assert done.repetitions > 2
    # The one rounding to bf16 is most of the error, and it is bounded by half a unit in the last
    # place: of many results some come close to that, and none above it.
    assert 0.5 < done.worst <= 1


def test_one_bit_that_flips_once_is_found_and_named():
    product = products.Planted(products.flips_a_bit, at=18, until=19)
    done = burning.burn("bf16", SIZE, "cpu", time.monotonic() + 1, product)
    assert done.repetitions > 17  # the first call is what all others are compared with
    assert done.mismatches == 1
    assert done.worst <= 1
    first = done.first
    assert (first.repetition, first.elements) == (17, 1)
    assert (first.positions, first.flipped) == (("3,5",), ("0x8",))
    # Bit 3 of the seven of bf16's mantissa is 1/16 of the power of two below the number.
    found, expected = float(first.found[0]), float(first.expected[0])
    assert 1 / 32 < abs(found - expected) / abs(expected) <= 1 / 15


def test_every_repetition_that_differs_is_counted():
    done = burning.burn("fp32", SIZE, "cpu", soon(), products.Planted(products.shifts_a_tile, at=3))
    assert done.mismatches == done.repetitions - 1
    assert (done.first.repetition, done.first.elements) == (2, 64 * 32)
    assert done.first.positions[:2] == ("64,32", "64,33")


def test_a_card_that_is_always_wrong_in_the_same_way_is_found():
    done = burning.burn("bf16", SIZE, "cpu", soon(), products.Planted(products.shifts_a_tile, at=1))
    assert done.mismatches == 0
    # 4 is far above what rounds: numbers of size 11 to bf16 by at most 1/32.
    assert done.worst > 1


def test_a_product_that_writes_nothing_is_no_result():
    done = burning.burn("bf16", SIZE, "cpu", soon(), lambda a, b, out: None)
    assert (done.mismatches, done.finite, done.worst) == (0, False, None)
    later = burning.burn("bf16", SIZE, "cpu", soon(), products.Planted(products.forgets, at=4))
    assert later.first.repetition == 3
    assert set(later.first.found) == {"nan"}


@pytest.mark.parametrize("size", [64, 128, 8192])
def test_rows_that_are_compared_lie_in_every_band(size):
    rows = burning.rows(size)
    assert [row // 64 for row in rows] == list(range(size // 64))
    if size == 8192:
        assert {row % 64 for row in rows} == set(range(64))


def test_all_of_it_is_told_and_survives_the_documents(tmp_path):
    started = time.monotonic()
    done = rating.rate("cpu", None, 2.0, str(tmp_path))
    assert time.monotonic() - started < 4
    assert (done.cards, done.failed) == (1, {})
    assert [rate.dtype for rate in done.rates] == ["bf16", "fp16", "tf32"]
    assert dict(done.left) == {"fp8": "not measured on the processor"}
    assert [(burn.dtype, burn.mismatches) for burn in done.burns] == [("bf16", 0), ("fp32", 0)]
    for rate in done.rates:
        # Two operations for each of size**3 terms: 4,194,304 of them.
        assert rate.tflops == pytest.approx(4.194304e-6 / (rate.milliseconds / 1000), rel=0.02)
        assert rate.seconds < 2 / 6 + 0.3
    assert codec.loads(Rated, codec.dumps(done), name="rated") == done


def test_what_takes_its_time_is_measured(tmp_path, monkeypatch):
    whole = burning.multiply

    def slow(a, b, out):
        time.sleep(0.01)
        return whole(a, b, out)

    monkeypatch.setattr(burning, "multiply", slow)
    done = rating.rate("cpu", None, 1.0, str(tmp_path))
    assert {r.dtype for r in done.rates} == {"bf16", "fp16", "tf32"}
    assert all(10 <= rate.milliseconds < 30 for rate in done.rates)


def test_operands_of_fp8_lie_as_they_are_multiplied():
    call = rating._call("fp8", SIZE, "cpu")
    left, right = call.args
    try:
        found = call().double()
    except RuntimeError as error:
        pytest.skip(f"this torch has no product of fp8 on the processor: {error}")
    expected = left.double() @ right.double()
    # One rounding to bf16 (2**-8 of the number), and sums of 128 terms in fp32.
    assert ((found - expected).abs() <= expected.abs() / 256 + 1e-3).all()


def test_a_card_without_units_for_a_type_is_not_asked_for_it(tmp_path):
    done = rating.rate("cpu", Sm(75), 1.0, str(tmp_path))
    assert [rate.dtype for rate in done.rates] == ["fp16"]
    assert set(done.left) == {"bf16", "tf32", "fp8"}
    assert done.left["bf16"] == "sm_75 has no matrix units for it"
    assert [burn.dtype for burn in done.burns] == ["fp16", "fp32"]


@pytest.mark.parametrize(
    ("spoil", "said"), [(products.hangs, "not done after"), (products.exits, "ended with code 7")]
)
def test_what_ends_in_the_burn_keeps_the_rates(spoil, said, tmp_path, monkeypatch):
    monkeypatch.setattr(rating, "_PATIENCE", 1.0)
    done = rating.rate("cpu", None, 1.5, str(tmp_path), products.Planted(spoil, at=5))
    assert set(done.failed) == {"burn bf16"}
    assert done.failed["burn bf16"].startswith(said)
    assert len(done.rates) == 3
    assert done.burns == ()


def test_each_card_is_asked_and_a_sick_one_costs_the_others_nothing(tmp_path, monkeypatch):
    measure = rating._rate_all

    def second_is_sick(task):
        sick = products.Planted(products.exits, at=3)
        measure(replace(task, product=sick) if task.card == 1 else task)

    monkeypatch.setattr(rating, "_rate_all", second_is_sick)
    done = rating.rate("cpu", None, 1.5, str(tmp_path), cards=3)
    assert done.cards == 3
    assert {(rate.card, rate.dtype) for rate in done.rates} == {
        (card, dtype) for card in range(3) for dtype in ("bf16", "fp16", "tf32")
    }
    assert {(burn.card, burn.dtype) for burn in done.burns} == {
        (card, dtype) for card in (0, 2) for dtype in ("bf16", "fp32")
    }
    assert set(done.failed) == {"burn bf16 on card 1"}
    assert set(done.left) == {"fp8", "fp8 on card 1", "fp8 on card 2"}


def test_an_error_is_told_by_its_first_line(tmp_path):
    done = rating.rate("cpu", None, 1.0, str(tmp_path), products.Planted(products.fails, at=1))
    said = "CUDA error: uncorrectable ECC error encountered"
    assert dict(done.failed) == {"burn bf16": said, "burn fp32": said}


def test_a_workload_measures_before_its_operations_and_only_when_asked():
    asked = ExecuteRequest(device="cpu", budget=60, rate=1.5, exchange=True)
    done = workload.execute(asked, [planted.MM])
    assert done.outcome.ok
    # Two processes stand for two cards.
    assert [(r.card, r.dtype) for r in done.rated.rates][::3] == [(0, "bf16"), (1, "bf16")]
    assert all(mode.holds for mode in done.collective.modes)
    assert {"rating", "exchanging"} <= set(done.spent)
    assert 1.0 < done.spent["rating"] < 4
    assert all(r.holds for r in done.runs)
    assert codec.loads(Executed, codec.dumps(done), name="executed") == done
    plain = workload.execute(ExecuteRequest(device="cpu", budget=60), [planted.MM])
    assert (plain.rated, plain.collective) == (None, None)
