"""Copies between cards of a driver with memory of its own, sound and lying paths (R32, R32b)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_memory import MEMORY, library, plant
from inventories import named, question, scanned

from envcheck.core import codec
from envcheck.core.exchanged import Exchanged
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding
from envcheck.guest import cards, exchange

__all__ = ["library"]

SIZE = MEMORY // 4


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, count=2)


def exchanged(library: str, seconds: float = 20.0) -> Exchanged:
    done = exchange.exchange(cards.look(library), seconds, library=library)
    assert done is not None
    assert codec.from_json(Exchanged, codec.to_json(done), "exchanged") == done
    return done


def judged(done: Exchanged) -> list[Finding]:
    machine = Machine(asked=Asked(), cards=cards.Cards(driver=None), exchanged=done)
    inventory = replace(scanned(), machine=machine)
    return list(named("peer-copies-arrive").run(question(inventory, "sm_90")))


def test_one_card_has_nobody_to_send_to(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, count=1)
    assert exchange.exchange(cards.look(library), 20.0, library=library) is None


def test_sound_paths_bring_every_byte_both_ways_and_by_both_paths(library: str) -> None:
    done = exchanged(library)
    assert done.claimed == ((0, 1), (1, 0))
    assert [(p.source, p.target, p.direct) for p in done.passages] == [
        (0, 1, False),
        (1, 0, False),
        (0, 1, True),
        (1, 0, True),
    ]
    for passage in done.passages:
        # A whole copy, one from byte 13 to 13 bytes before the end, and one by a kernel.
        assert passage.copied == 2 * SIZE - 26 + passage.direct * SIZE
        assert (passage.wrong, passage.error, passage.hung) == ((), "", False)
        assert passage.rate is not None
        assert passage.rate > 0
    (finding,) = judged(done)
    assert finding.status.value == "pass"
    assert "2 directly" in finding.message


def test_what_the_driver_does_not_claim_is_not_tried_directly(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, peers=0, direct="zeros")
    done = exchanged(library)
    assert done.claimed == ()
    assert {p.direct for p in done.passages} == {False}
    assert [f.status.value for f in judged(done)] == ["pass"]


@pytest.mark.parametrize(
    ("fault", "looks", "offset", "copies"),
    [
        ("zeros", "zeros", 0, 2),
        ("stale", "untouched", 0, 2),
        ("tail", "zeros", SIZE - 4096, 2),
        ("bit", "other", SIZE // 3, 2),
        ("odd", "other", (SIZE - 26) // 3, 1),
        ("beyond", "beyond", SIZE - 26, 1),
    ],
)
def test_r32b_a_lying_copy_is_told_with_cards_way_and_workaround(
    library: str, monkeypatch: pytest.MonkeyPatch, fault: str, looks: str, offset: int, copies: int
) -> None:
    plant(monkeypatch, direct=fault, one_way=1)
    done = exchanged(library)
    (bad,) = (p for p in done.passages if p.wrong)
    assert (bad.source, bad.target, bad.direct) == (0, 1, True)
    assert len(bad.wrong) == copies
    assert bad.wrong[0].looks == looks
    # A random byte may be zero by chance, where the copy is of zeros: then the next one is.
    assert offset <= bad.wrong[0].offset < offset + 4
    failed, passed = judged(done)
    assert (failed.subject, failed.status.value) == ("card 0 -> 1", "fail")
    assert failed.domain.value == "host"
    assert "no error" in failed.message
    assert "NCCL_P2P_DISABLE=1" in failed.remedy
    assert "IOMMU" in failed.remedy
    assert passed.status.value == "pass"


def test_a_lie_on_the_way_through_the_host_has_no_workaround(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, staged="bit", one_way=1)
    failed = judged(exchanged(library))[0]
    assert (failed.subject, failed.status.value) == ("card 0 -> 1", "fail")
    assert "NCCL_P2P_DISABLE" not in failed.remedy
    assert "by way of the host" in failed.message


def test_r32_a_hang_is_ended_and_what_came_before_it_is_kept(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_SHORTEST", 1.0)
    monkeypatch.setattr(exchange, "_LONGEST", 3.0)
    plant(monkeypatch, direct="hang")
    done = exchanged(library)
    assert [(p.source, p.direct, p.hung) for p in done.passages] == [
        (0, False, False),
        (1, False, False),
        (0, True, True),
    ]
    assert dict(done.left) == {"1 -> 0, directly": "not done after 3 s"}
    hung, skipped, passed = judged(done)
    assert (hung.subject, hung.status.value) == ("card 0 -> 1", "fail")
    assert "does not come to an end" in hung.message
    assert "NCCL_P2P_DISABLE=1" in hung.remedy
    assert (skipped.subject, skipped.status.value) == ("card 1 -> 0, directly", "skip")
    assert passed.status.value == "pass"


def test_r32b_a_kernel_whose_writes_to_the_other_card_are_lost_is_told(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, kernel="stale")
    done = exchanged(library)
    found = [(p.source, w.by, w.looks) for p in done.passages for w in p.wrong]
    assert found == [(0, "kernel", "untouched"), (1, "kernel", "untouched")]
    failed = judged(done)[0]
    assert failed.status.value == "fail"
    assert "by a kernel gives wrong bytes" in failed.message


def test_an_error_of_the_driver_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, direct="error")
    done = exchanged(library)
    assert done.passages[2].error == "CUDA_ERROR_ECC_UNCORRECTABLE (214)"
    failed = judged(done)[0]
    assert failed.status.value == "fail"
    assert "CUDA_ERROR_ECC_UNCORRECTABLE (214)" in failed.message
    assert "1 -> 0, directly" in done.left


def test_peer_access_that_is_claimed_and_refused_is_told(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, enable=214)
    found = judged(exchanged(library))
    assert [f.status.value for f in found] == ["fail", "fail", "pass"]


def test_a_pair_without_a_start_is_left_with_the_reason(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = cards.look(library)
    plant(monkeypatch, load=221)
    done = exchange.exchange(told, 20.0, library=library)
    assert done is not None
    assert done.passages == ()
    why = "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221)"
    assert dict(done.left) == {"0 -> 1": why, "1 -> 0": why}
    assert {f.status.value for f in judged(done)} == {"skip"}


def test_pairs_for_which_no_time_is_left_are_named(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, count=3)
    done = exchanged(library, 0.0)
    assert len(done.left) == 6
    assert set(done.left.values()) == {"no time was left"}
    assert {f.status.value for f in judged(done)} == {"skip"}
