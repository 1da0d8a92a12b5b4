"""Rates, burn and collectives on real cards: a healthy one passes, and planted faults are found."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from inventories import environment, named

torch = pytest.importorskip("torch", reason="the products are torch's")

sys.path.append(str(Path(__file__).parents[1] / "guest"))

import planted_products as products  # noqa: E402

from envcheck import targets  # noqa: E402
from envcheck.checks import Question  # noqa: E402
from envcheck.core.model import Status, Target  # noqa: E402
from envcheck.core.request import ExecuteRequest  # noqa: E402
from envcheck.core.sm import Sm  # noqa: E402
from envcheck.guest import collective, rating, workload  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def _card():
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else this process could not fork any more
    if not torch.cuda.is_available():
        pytest.skip("there is no card that torch can use")


@pytest.fixture(scope="module")
def done():
    return workload.execute(ExecuteRequest(budget=60, rate=12, exchange=True), [])


def found(check, done):
    row = targets.reported(done.card.name)
    limits = row.limits if row is not None else None
    target = Target(name="native", sm=done.card.sm, card=done.card.name, limits=limits)
    whole = replace(environment(), executed=done)
    about = Question(target=target, sm=Sm.parse(target.sm), driver=None, inventory=whole)
    return list(named(check).run(about))


@pytest.mark.parametrize("check", ["matrix-units-are-fast", "repeated-work-is-bit-equal"])
def test_a_healthy_card_passes(check, done):
    findings = found(check, done)
    for finding in findings:
        sys.stdout.write(f"{finding.subject}: {finding.status.value}: {finding.message}\n")
    assert {f.status for f in findings} <= {Status.PASS, Status.SKIP}
    assert Status.PASS in {f.status for f in findings}
    assert done.rated.seconds < 12 + 8  # with the driver's start


def test_cards_exchange_exact_numbers_or_are_one(done):
    (finding, *_) = findings = found("collectives-are-exact", done)
    for each in findings:
        sys.stdout.write(f"{each.subject}: {each.status.value}: {each.message}\n")
    if done.collective.cards < 2:
        assert finding.status is Status.SKIP
    else:
        assert finding.status is Status.PASS
        assert done.collective.modes[0].transports


def test_one_flipped_bit_in_a_burn_is_found(tmp_path):
    product = products.Planted(products.flips_a_bit, at=18, until=19)
    (burn, *_) = rating.rate("cuda", None, 6.0, str(tmp_path), product).burns
    assert (burn.mismatches, burn.first.repetition, burn.first.elements) == (1, 17, 1)
    assert (burn.first.positions, burn.first.flipped) == (("3,5",), ("0x8",))


def test_a_tile_that_is_always_wrong_is_found(tmp_path):
    product = products.Planted(products.shifts_a_tile, at=1)
    (burn, *_) = rating.rate("cuda", None, 6.0, str(tmp_path), product).burns
    assert burn.mismatches == 0
    assert burn.worst > 1


def test_a_hang_keeps_the_rates(tmp_path, monkeypatch):
    monkeypatch.setattr(rating, "_PATIENCE", 10.0)
    product = products.Planted(products.hangs, at=5)
    done = rating.rate("cuda", None, 6.0, str(tmp_path), product)
    (at,) = done.failed
    assert at.startswith("burn ")
    assert done.failed[at].startswith("not done after")
    assert {rate.dtype for rate in done.rates} >= {"fp16"}


def test_a_hang_between_cards_ends_and_names_the_variable(tmp_path, monkeypatch, done):
    if done.collective.cards < 2:
        pytest.skip("there is one card")
    whole = torch.distributed.all_reduce

    def hangs(tensor, *rest, **more):
        if torch.distributed.get_rank() != 1 or os.environ.get("NCCL_P2P_DISABLE") == "1":
            whole(tensor, *rest, **more)
        else:
            time.sleep(60)

    monkeypatch.setattr(torch.distributed, "all_reduce", hangs)
    hung = collective.exchange("cuda", done.collective.cards, str(tmp_path), deadline=25)
    assert hung.modes[0].hung
    assert hung.modes[1].holds
    (finding,) = found("collectives-are-exact", replace(done, collective=hung))
    assert finding.status is Status.FAIL
    assert finding.remedy == "export NCCL_P2P_DISABLE=1"
