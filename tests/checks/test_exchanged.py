"""Copies between cards, judged (recipes R32 and R32b)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import named, question, scanned

from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverCard, DriverFacts
from envcheck.core.exchanged import Exchanged, Passage, WrongCopy
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding

CARD = DriverCard(
    name="NVIDIA RTX 6000 Ada Generation",
    sm="sm_89",
    uuid="GPU-1",
    total_memory=48 << 30,
    multiprocessors=142,
    shared_memory_per_block=101376,
)


def judged(*passages: Passage, count: int = 2, **left: str) -> list[Finding]:
    driver = DriverFacts(init=0, cards=(CARD,) * count)
    exchanged = Exchanged(cards=("GPU-1", "GPU-2"), passages=passages) if passages else None
    machine = Machine(asked=Asked(), cards=Cards(driver=driver), exchanged=exchanged, left=left)
    inventory = replace(scanned(), machine=machine)
    return list(named("peer-copies-arrive").run(question(inventory, "sm_89")))


def way(source: int, target: int, *, direct: bool, **facts: object) -> Passage:
    return Passage(source=source, target=target, direct=direct, copied=1 << 27, **facts)


def test_one_card_is_nothing_to_look_at_and_two_that_were_not_tried_are_said() -> None:
    (alone,) = judged(count=1)
    assert (alone.status.value, alone.message) == ("skip", "there is one card")
    (both,) = judged(exchanged="no time was left")
    assert (both.status.value, both.message) == ("skip", "no time was left")


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ("other", "other bytes arrived at byte 512"),  # R32b, open-gpu-kernel-modules#1257
        ("zeros", "zeros arrived"),  # pytorch/pytorch#84803
        ("untouched", "nothing was written there"),
    ],
)
def test_r32b_wrong_bytes_fail_with_both_cards_and_the_workaround(looks: str, said: str) -> None:
    wrong = WrongCopy(size=1 << 26, offset=512, looks=looks)
    bad = way(0, 1, direct=True, wrong=(wrong,), rate=20.0)
    failed, passed = judged(bad, way(1, 0, direct=True, rate=21.0))
    assert (failed.subject, failed.status.value, failed.domain.value) == (
        "card 0 -> 1",
        "fail",
        "host",
    )
    assert said in failed.message
    assert failed.evidence["source"] == "GPU-1"
    assert failed.evidence["target"] == "GPU-2"
    assert failed.remedy.startswith("export NCCL_P2P_DISABLE=1")
    assert (passed.status.value, passed.evidence) == ("pass", {"1->0 direct gb_per_s": 21.0})


def test_r32_a_hang_fails() -> None:
    (failed,) = judged(way(1, 0, direct=True, error="not done after 15 s", hung=True))
    assert (failed.subject, failed.status.value) == ("card 1 -> 0", "fail")
    assert "does not come to an end" in failed.message


def test_memory_that_others_hold_is_no_fault_of_the_path() -> None:
    (skipped,) = judged(way(0, 1, direct=False, error="CUDA_ERROR_OUT_OF_MEMORY (2)"))
    assert skipped.status.value == "skip"
