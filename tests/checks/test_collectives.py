"""collectives-are-exact, from made-up facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import environment, named

from envcheck.checks import Question
from envcheck.core.cards import Cards
from envcheck.core.collective import WITHOUT_P2P, Collective, Mode, Rank, Wrong
from envcheck.core.compiled import Outcome
from envcheck.core.executed import Card, Executed
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Domain, Finding, Status, Target
from envcheck.core.sm import Sm

ID = "collectives-are-exact"
OK, LATE = Outcome(status="ok"), Outcome(status="timed-out", milliseconds=40_000)
TARGET = Target(name="h200", sm="sm_90")
CARD = Card(
    name="NVIDIA H200",
    sm="sm_90",
    uuid="GPU-0",
    total_memory=150_000_000_000,
    free_memory=149_400_000_000,
    driver="580.159.04",
    mig=False,
)
GOOD = (Rank(rank=0, outcome=OK, reached="end"), Rank(rank=1, outcome=OK, reached="end"))
STUCK = tuple(
    replace(r, outcome=LATE, reached="all_reduce fp32", message="not done after 40 s") for r in GOOD
)
LOST = Wrong(step="broadcast", elements=65536, of=65536, position=0, expected="1.0", found="0.0")
WRONG = (replace(GOOD[0], wrong=(LOST,)), GOOD[1])
DIRECT = Mode(ranks=GOOD, transports=("P2P/CUMEM",), bytes=1 << 28, milliseconds=0.8, bus=335.5)
SHARED = Mode(variables=WITHOUT_P2P, ranks=GOOD, transports=("SHM",), bus=10.0)


def exchanged(*modes: Mode, **facts: object) -> Collective:
    values = {"backend": "NCCL 2.30.7", "cards": 2, "deadline": 40.0, "modes": modes, **facts}
    return Collective(**values)


def asked(found: Collective | None, card: Card | None = CARD) -> list[Finding]:
    ran = Executed(outcome=OK, card=card, torch="2.14.1", collective=found)
    machine = Machine(asked=Asked(), cards=Cards(driver=None))
    whole = replace(environment(), executed=ran, machine=machine)
    about = Question(target=TARGET, sm=Sm(90), driver=None, inventory=whole)
    return list(named(ID).run(about))


def one(found: Collective | None, card: Card | None = CARD) -> Finding:
    (finding,) = asked(found, card)
    return finding


@pytest.mark.parametrize(
    ("found", "card", "said"),
    [
        (None, CARD, "that was not looked at"),
        (None, None, "nothing could be run"),
        (exchanged(cards=1, left="one card is visible: why"), CARD, "one card is visible: why"),
        (exchanged(), CARD, "nothing was exchanged"),
    ],
)
def test_what_was_not_exchanged_is_skipped_with_the_reason(found, card, said):
    finding = one(found, card)
    assert (finding.status, finding.required) == (Status.SKIP, False)
    assert said in finding.message


def test_without_a_machine_it_says_who_looks_at_it():
    about = Question(target=TARGET, sm=Sm(90), driver=None, inventory=environment())
    (finding,) = named(ID).run(about)
    assert finding.message == "the machine was not looked at: `envcheck preflight` does that"


@pytest.mark.parametrize(
    "second", [SHARED, Mode(variables=WITHOUT_P2P, left="nothing was copied directly before")]
)
def test_exact_sums_pass_and_the_way_is_named(second):
    finding = one(exchanged(DIRECT, second))
    assert finding.status is Status.PASS
    assert finding.message == "2 cards, via P2P/CUMEM: exact, 335.5 GB/s"
    assert finding.evidence["modes"][0]["bus_gb_per_s"] == 335.5


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (STUCK, "card 0 at all_reduce fp32, card 1 at all_reduce fp32"),
        (WRONG, "broadcast: 65536 of 65536 elements are wrong on card 0 (0.0 instead of 1.0)"),
    ],
)
def test_what_works_without_copies_between_cards_names_cause_and_variable(ranks, said):
    finding = one(exchanged(replace(DIRECT, ranks=ranks, bus=None), SHARED))
    assert (finding.status, finding.domain) == (Status.FAIL, Domain.HOST)
    assert said in finding.message
    assert "ACS" in finding.message
    assert "IOMMU" in finding.message
    assert finding.remedy == "export NCCL_P2P_DISABLE=1"


def test_what_fails_both_ways_has_no_variable_that_helps():
    finding = one(exchanged(replace(DIRECT, ranks=STUCK), replace(SHARED, ranks=STUCK)))
    assert finding.status is Status.FAIL
    assert "without copies between cards too" in finding.message
    assert "NCCL_P2P_DISABLE" not in finding.remedy
    wrong = one(exchanged(replace(DIRECT, ranks=WRONG), replace(SHARED, ranks=WRONG)))
    assert (wrong.status, wrong.domain) == (Status.FAIL, Domain.CARD)


def test_who_failed_by_himself_is_named_before_who_waited():
    aborted = Outcome(status="crashed", signal="SIGABRT")
    bad = Rank(rank=1, outcome=aborted, message="killed by SIGABRT", reached="broadcast")
    finding = one(exchanged(replace(DIRECT, ranks=(STUCK[0], bad)), SHARED))
    assert "the process of card 1 failed at broadcast: killed by SIGABRT" in finding.message


def test_a_small_dev_shm_is_named_by_nccl_itself():
    """EC-125 of the reports: segments of 9.6 MB do not fit into docker's 64 MB."""
    warned = "Error while creating shared memory segment /dev/shm/nccl-a1 (size 9637888)"
    raised = Outcome(status="raised", error="DistBackendError: unhandled system error")
    bad = replace(GOOD[0], outcome=raised, message="DistBackendError", warnings=(warned,))
    ranks = (bad, replace(STUCK[1]))
    finding = one(exchanged(replace(DIRECT, ranks=ranks), replace(SHARED, ranks=ranks)))
    assert (finding.status, finding.domain) == (Status.FAIL, Domain.HOST)
    assert warned in finding.message
    assert finding.remedy.startswith("docker run --shm-size")


def test_a_way_around_that_is_broken_is_a_reservation():
    passed, warned = asked(exchanged(DIRECT, replace(SHARED, ranks=STUCK)))
    assert (passed.status, warned.status) == (Status.PASS, Status.WARN)
    assert "without copies between cards" in warned.message


def test_copies_that_are_slower_than_through_the_host_are_a_reservation():
    """NVIDIA/nccl#199: with ACS nothing hangs, it only crawls."""
    passed, warned = asked(exchanged(replace(DIRECT, bus=0.6), SHARED))
    assert (passed.status, warned.status) == (Status.PASS, Status.WARN)
    assert "0.6 GB/s with copies between cards, 10 GB/s without" in warned.message
    assert warned.remedy == "export NCCL_P2P_DISABLE=1"
    assert len(asked(exchanged(replace(DIRECT, bus=6.0), SHARED))) == 1
