"""What a report says about a rental in one word, from findings made by hand."""

from __future__ import annotations

import pytest

from envcheck.core.decision import BACK, KEEP, RESERVED, decide, unfit
from envcheck.core.model import Domain, Finding, Status


def finding(check: str, status: str, domain: str = "host", *, required: bool = True) -> Finding:
    return Finding(
        check=check,
        subject=f"the {check}",
        status=Status(status),
        message=f"{status} of {domain}",
        domain=Domain(domain),
        required=required,
        evidence={},
    )


GOOD = (finding("card", "pass", "card"), finding("disk", "pass"), finding("memory", "pass", "card"))
TELLING, WORK = ("memory", "card"), ("memory",)


@pytest.mark.parametrize("domain", ["host", "card"])
@pytest.mark.parametrize("status", ["fail", "error"])
def test_what_is_the_machines_fault_gives_it_back(status: str, domain: str) -> None:
    decision = decide([*GOOD, finding("link", status, domain)], TELLING, WORK)
    assert decision.word == BACK
    assert decision.line == f"give back: the link: {status} of {domain}"


@pytest.mark.parametrize("domain", ["package", "image", "kernel", "job", "envcheck"])
def test_what_can_be_mended_here_does_not(domain: str) -> None:
    decision = decide([*GOOD, finding("torch", "fail", domain)], TELLING, WORK)
    assert (decision.word, decision.facts) == (RESERVED, (f"the torch: fail of {domain}",))


def test_a_warning_about_the_machine_is_a_reservation_and_one_about_a_package_is_none() -> None:
    assert decide([*GOOD, finding("power", "warn", "card")], TELLING, WORK).word == RESERVED
    assert decide([*GOOD, finding("pins", "warn", "package")], TELLING, WORK).word == KEEP


def test_what_had_to_be_looked_at_and_was_not_is_a_reservation() -> None:
    assert decide([*GOOD, finding("ops", "skip", "kernel")], TELLING, WORK).word == RESERVED
    assert decide([*GOOD, finding("peers", "skip", required=False)], TELLING, WORK).word == KEEP


def test_a_finding_that_decides_nothing_does_not_decide_this() -> None:
    other = finding("variant", "fail", "card", required=False)
    assert unfit([other]) == []
    assert decide([*GOOD, other], TELLING, WORK).word == KEEP


def test_the_facts_of_a_good_machine_are_those_that_say_most_in_their_order() -> None:
    decision = decide(GOOD, TELLING, WORK)
    assert decision.line == "keep: the memory: pass of card; the card: pass of card"


def test_three_facts_and_one_of_each_check_before_any_second() -> None:
    many = [finding("a", "fail"), finding("a", "fail"), finding("b", "fail"), finding("c", "fail")]
    assert [f.partition(":")[0] for f in decide(many, ()).facts] == ["the a", "the b", "the c"]


def test_nothing_looked_at_is_no_keep() -> None:
    assert decide([], TELLING, WORK).word == RESERVED
    assert decide([finding("disk", "pass")], TELLING, WORK).word == RESERVED


def test_a_card_on_which_nothing_was_tried_is_no_keep() -> None:
    """Its name, and that the driver starts, speak for no card."""
    named = [finding("card", "pass", "card"), finding("memory", "skip", required=False)]
    decision = decide(named, TELLING, WORK)
    assert decision.line == "keep with reservations: the memory: skip of host"
