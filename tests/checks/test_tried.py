"""What cards did, judged by numbers that were worked out by hand (recipe R33)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inventories import named, question, scanned

from envcheck.core.cards import Cards
from envcheck.core.limits import Limits
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding, Target
from envcheck.core.pcie import generation, lane_rate
from envcheck.core.tried import (
    Bus,
    Copied,
    Held,
    Launches,
    Link,
    Mismatch,
    Pass,
    Stopped,
    Tried,
)

H200 = Limits(card="h200", memory_gb=141, bandwidth=4800.0, pcie=5, source="data sheet")


def ask(check: str, *tried: Tried, target: Target | None = None, **left: str) -> list[Finding]:
    machine = Machine(asked=Asked(), cards=Cards(driver=None), tried=tried, left=left)
    asked = question(replace(scanned(), machine=machine), "sm_90")
    return list(named(check).run(replace(asked, target=target or asked.target)))


def card(**facts: object) -> Tried:
    return Tried(uuid="GPU-1", name="NVIDIA H200", **facts)


def only(check: str, tried: Tried, target: Target | None = None) -> Finding:
    (finding,) = ask(check, tried, target=target)
    return finding


@pytest.mark.parametrize(
    "check",
    [
        "launches-are-quick",
        "host-link-keeps-data",
        "host-link-is-fast",
        "device-memory-is-fast",
        "device-memory-holds-what-is-written",
        "peer-copies-arrive",
    ],
)
def test_what_was_not_looked_at_is_a_skip_with_the_reason(check: str) -> None:
    (finding,) = named(check).run(question(scanned(), "sm_90"))
    assert finding.status.value == "skip"
    assert "envcheck preflight" in finding.message
    (finding,) = ask(check, tried="--quick leaves it out", exchanged="--quick leaves it out")
    assert (finding.status.value, finding.message) == ("skip", "--quick leaves it out")


@pytest.mark.parametrize(
    ("rate", "status", "said"),
    [
        (4300.0, "pass", "90% of the maker's 4800"),
        (3360.0, "pass", "70%"),
        (3359.0, "warn", "70%"),
        (2400.0, "warn", "50%"),
        (2399.0, "fail", "50%"),
    ],
)
def test_memory_is_compared_with_the_makers_number(rate: float, status: str, said: str) -> None:
    target = Target(name="native", sm="sm_90", card="NVIDIA H200", limits=H200)
    done = card(copied=Copied(size=2 << 30, by_kernel=rate, by_driver=rate - 700))
    finding = only("device-memory-is-fast", done, target)
    assert finding.status.value == status
    assert said in finding.message
    assert finding.evidence["measured_gb_per_s"] == rate


def test_without_a_makers_number_of_this_very_product_there_is_none_to_compare_with() -> None:
    done = card(copied=Copied(size=2 << 30, by_kernel=100.0, by_driver=90.0))
    target = Target(name="native", sm="sm_90", card="NVIDIA H100", limits=H200)
    slice_ = replace(done, uuid="MIG-1")
    native = replace(target, card="NVIDIA H200")
    unknown = Target(name="sm_90", sm="sm_90")
    for tried, wanted in ((done, target), (slice_, native), (done, unknown)):
        finding = only("device-memory-is-fast", tried, wanted)
        assert finding.status.value == "pass"
        assert "no number of the maker's is known" in finding.message


def test_lanes_carry_what_the_specification_says() -> None:
    # GB/s of a lane, as published: 0.25, 0.5, 0.985, 1.969, 3.938, 7.563.
    rates = [round(lane_rate(speed), 3) for speed in (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)]
    assert rates == [0.25, 0.5, 0.985, 1.969, 3.938, 7.562]
    assert [generation(s) for s in (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)] == [1, 2, 3, 4, 5, 6]
    assert (generation(7.0), lane_rate(7.0)) == (None, 0.0)


def bus(speed: float, width: int, most_speed: float = 16.0, most_width: int = 16) -> Bus:
    return Bus(speed=speed, width=width, most_speed=most_speed, most_width=most_width)


# A card of generation 4 with 16 lanes could carry 31.5 GB/s; an eighth of that is 3.94.
@pytest.mark.parametrize(
    ("to_card", "to_host", "link", "status", "said"),
    [
        (25.5, 26.8, bus(16.0, 16), "pass", "81% of x16 of generation 4"),  # nvbandwidth#15
        (56.3, 57.3, bus(32.0, 16, 32.0), "pass", "89% of x16 of generation 5"),  # an RTX 5090
        (52.8, 35.2, bus(32.0, 16, 32.0), "warn", "56% of what x16"),
        (
            13.0,
            13.2,
            bus(8.0, 16),
            "warn",
            "the link is x16 of generation 3, the card could do x16",
        ),
        (6.5, 6.6, bus(16.0, 4), "warn", "the link is x4 of generation 4"),
        (1.6, 1.7, bus(16.0, 1), "fail", "over a link that is x1 of generation 4"),
        (0.2, 0.21, bus(2.5, 1), "fail", "x1 of generation 1; the card could do x16"),
        (3.3, 3.4, bus(2.5, 16), "fail", "x16 of generation 1"),
        (18.0, 18.8, bus(16.0, 16), "warn", "57% of what x16 of generation 4 carries (31.5)"),
        # Virtual machines, and cards whose link is no PCI Express at all.
        (25.5, 26.8, bus(2.5, 255), "pass", "does not show how the link is trained"),
        (25.5, 26.8, bus(2.5, 16), "pass", "does not show how the link is trained"),
        (300.0, 280.0, bus(32.0, 16, 32.0), "pass", "does not show how the link is trained"),
        (25.5, 26.8, None, "pass", "does not show how the link is trained"),
        (25.5, 12.0, None, "warn", "one way is much slower"),
        (0.9, 0.95, None, "fail", "less than a single lane of generation 3"),
    ],
)
def test_r33_a_link_is_compared_with_its_lanes(
    to_card: float, to_host: float, link: Bus | None, status: str, said: str
) -> None:
    facts = Link(size=256 << 20, to_card=to_card, to_host=to_host, wrong=0, bus=link)
    finding = only("host-link-is-fast", card(link=facts))
    assert (finding.status.value, finding.domain.value) == (status, "host")
    assert said in finding.message
    assert bool(finding.remedy) is (status != "pass")


@pytest.mark.parametrize(("answered", "status"), [(7.0, "pass"), (100.0, "pass"), (101.0, "warn")])
def test_launches(answered: float, status: str) -> None:
    done = card(launches=Launches(answered=answered, enqueued=3.0, count=300))
    assert only("launches-are-quick", done).status.value == status


def held(*passes: Pass, tested: int = 133_000_000_000, left: str = "") -> Held:
    total = 140_000_000_000
    return Held(total=total, free=total, tested=tested, passes=passes, left=left)


def one(pattern: str, *first: Mismatch, wrong: int = 0, bits: str = "0x0") -> Pass:
    return Pass(pattern=pattern, seed=0, wrong=wrong, bits=bits, first=first, seconds=0.1)


def test_memory_that_holds_is_told_with_how_much_of_it_was_looked_at() -> None:
    done = card(held=held(one("address"), one("random")))
    finding = only("device-memory-holds-what-is-written", done)
    assert finding.status.value == "pass"
    assert finding.message == "133.0 of 140.0 GB (95%) held 2 patterns"
    cut = card(held=held(one("address"), left="no time was left after 1 of 6 patterns"))
    assert "no time was left" in only("device-memory-holds-what-is-written", cut).message
    small = card(held=held(one("address"), tested=69_000_000_000))
    assert only("device-memory-holds-what-is-written", small).status.value == "warn"
    none = card(held=held(left="no memory of the card could be had", tested=0))
    assert only("device-memory-holds-what-is-written", none).status.value == "skip"


def test_a_stuck_bit_that_looks_like_an_address_is_not_called_one() -> None:
    # Bit 1 of word 0x10 is stuck at 1, which makes 0x12 of it; its complement has that bit anyway.
    found = Mismatch(offset=0x80, expected=f"{0x10:#018x}", found=f"{0x12:#018x}")
    done = card(held=held(one("address", found, wrong=1, bits="0x2"), one("address, turned over")))
    finding = only("device-memory-holds-what-is-written", done)
    assert (finding.status.value, finding.domain.value) == ("fail", "card")
    assert "at 0x80 0x0000000000000010 was written and 0x0000000000000012 found" in finding.message
    assert "one cell" not in finding.message


def test_two_addresses_of_one_cell_are_named() -> None:
    found = Mismatch(offset=0x80, expected=f"{0x10:#018x}", found=f"{0x12:#018x}")
    turned = Mismatch(offset=0x80, expected="0xffffffffffffffef", found="0xffffffffffffffed")
    passes = (one("address", found, wrong=1), one("address, turned over", turned, wrong=1))
    finding = only("device-memory-holds-what-is-written", card(held=held(*passes)))
    assert "which was written to 0x90: two addresses are one cell" in finding.message


@pytest.mark.parametrize(
    ("stopped", "status", "said"),
    [
        (Stopped(step="held", error="CUDA_ERROR_ECC_UNCORRECTABLE (214)"), "fail", "(214)"),
        (Stopped(step="held", error="not done after 60 s", hung=True), "fail", "did not answer"),
        (Stopped(step="held", error="CUDA_ERROR_OUT_OF_MEMORY (2)"), "skip", "OUT_OF_MEMORY"),
        (Stopped(step="held", error="unnamed (302)"), "fail", "(302)"),
    ],
)
def test_a_card_that_stops_is_told_with_what_it_said(
    stopped: Stopped, status: str, said: str
) -> None:
    finding = only("device-memory-holds-what-is-written", card(stopped=(stopped,)))
    assert finding.status.value == status
    assert said in finding.message


def test_a_card_that_cannot_be_started_fails_once() -> None:
    start = Stopped(step="start", error="CUDA_ERROR_UNKNOWN (999)")
    left = dict.fromkeys(("launches", "link", "copied", "held"), "ended before")
    done = card(stopped=(start,), left=left)
    failed, skipped = ask("device-memory-holds-what-is-written", done)
    assert (failed.status.value, skipped.status.value) == ("fail", "skip")
    for check in ("launches-are-quick", "host-link-is-fast", "device-memory-is-fast"):
        assert only(check, done).status.value == "skip"


def test_two_cards_of_one_product_are_told_apart() -> None:
    done = [card(launches=Launches(answered=a, enqueued=3.0, count=300)) for a in (7.0, 200.0)]
    found = ask("launches-are-quick", *done)
    assert [f.subject for f in found] == ["card 0 (NVIDIA H200)", "card 1 (NVIDIA H200)"]
    same = ask("launches-are-quick", done[0], done[0])
    assert [f.subject for f in same] == ["card 0 (NVIDIA H200)", "card 1 (NVIDIA H200)"]
