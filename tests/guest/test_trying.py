"""Cards of a driver with memory of its own, sound ones and such with planted faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_memory import MEMORY, library, plant
from inventories import CHECKS, scanned

from envcheck.checks import Question
from envcheck.core import codec
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Finding, Target
from envcheck.core.sm import Sm
from envcheck.core.tried import Bus, Tried
from envcheck.guest import cards, host_link, memory_test, trying
from envcheck.guest.patterns import RANDOM, Pattern

__all__ = ["library"]

PAGE = 4096
IDS = (
    "launches-are-quick",
    "host-link-keeps-data",
    "host-link-is-fast",
    "device-memory-is-fast",
    "device-memory-holds-what-is-written",
)


def tried(library: str, seconds: float = 20.0, *, full: bool = False) -> Tried:
    (one,) = trying.try_cards(cards.look(library), seconds, full=full, library=library)
    assert codec.from_json(Tried, codec.to_json(one), "tried") == one
    return one


def judged(*done: Tried) -> dict[str, Finding]:
    """Return what each check says of the first card."""
    machine = Machine(asked=Asked(), cards=cards.Cards(driver=None), tried=done)
    inventory = replace(scanned(), machine=machine)
    question = Question(
        target=Target(name="sm_90", sm="sm_90"),
        sm=Sm.parse("sm_90"),
        driver=None,
        inventory=inventory,
    )
    return {c.id: next(iter(c.run(question))) for c in CHECKS if c.id in IDS}


def statuses(done: Tried) -> dict[str, str]:
    return {name: finding.status.value for name, finding in judged(done).items()}


def test_a_sound_card_is_tried_in_full_and_nothing_speaks_against_it(library: str) -> None:
    done = tried(library)
    assert (done.stopped, dict(done.left)) == ((), {})
    assert done.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert done.launches is not None
    assert done.launches.count == 300
    assert done.link is not None
    assert (done.link.wrong, done.link.size, done.link.pinned) == (0, MEMORY // 4, "")
    assert done.copied is not None
    assert done.copied.rate == max(done.copied.by_kernel, done.copied.by_driver) > 0
    held = done.held
    assert held is not None
    # 5 % are left alone, less what a chunk is rounded to.
    assert MEMORY * 0.95 - 16 <= held.tested <= MEMORY * 0.95
    assert [p.wrong for p in held.passes] == [0] * 6
    assert (held.total, held.left) == (MEMORY, "")
    assert set(statuses(done).values()) == {"pass"}


def test_half_of_what_is_free_is_left_where_the_host_has_no_other_memory(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, integrated="1")
    held = tried(library).held
    assert held is not None
    assert MEMORY // 2 - 16 <= held.tested <= MEMORY // 2


def test_a_full_test_goes_on_with_other_seeds(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_test, "_FULL", 10)
    held = tried(library, full=True).held
    assert held is not None
    seeds = [(p.pattern, p.seed) for p in held.passes]
    assert seeds[5:8] == [("address, turned over", 0), ("random", 1), ("random, turned over", 1)]
    assert len(set(seeds)) == 10
    assert {p.wrong for p in held.passes} == {0}


def test_a_stuck_bit_is_found_and_is_no_second_address(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, stuck="40000001:5")
    done = tried(library)
    held = done.held
    assert held is not None
    wrong = [p for p in held.passes if p.wrong]
    # Bit 5 of the second byte, in the patterns in which it is to be 0, and never in others.
    assert {(p.wrong, p.bits) for p in wrong} == {(1, "0x2000")}
    assert {p.first[0].offset for p in wrong} == {40_000_000}
    assert 2 <= len(wrong) <= 5
    finding = judged(done)["device-memory-holds-what-is-written"]
    assert (finding.status.value, finding.domain.value) == ("fail", "card")
    assert "0x2625a00" in finding.message  # 40 000 000
    assert "one cell" not in finding.message


def test_two_addresses_that_are_one_cell_are_named_both(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, alias="5000:9000")
    done = tried(library)
    held = done.held
    assert held is not None
    by_name = {p.pattern: p.wrong for p in held.passes}
    # One page of 512 words holds what was written last, to the other one. A bit that walks over 64
    # words is the same on both, 4000 pages apart: this is what the other patterns are for.
    assert by_name["address"] == by_name["random"] == 512
    assert by_name["walking one"] == 0
    finding = judged(done)["device-memory-holds-what-is-written"]
    assert finding.status.value == "fail"
    assert f"at {5000 * PAGE:#x}" in finding.message
    assert f"written to {9000 * PAGE:#x}: two addresses are one cell" in finding.message


@pytest.mark.parametrize(
    ("fault", "side"), [("to card", "to card"), ("to host", "to host"), ("nothing", "to host")]
)
def test_data_that_a_link_changes_is_told_with_the_way(
    library: str, monkeypatch: pytest.MonkeyPatch, fault: str, side: str
) -> None:
    plant(monkeypatch, link=fault)
    done = tried(library)
    assert done.link is not None
    size = MEMORY // 4
    assert done.link.wrong == (size // 8 if fault == "nothing" else 1)
    assert {m.side for m in done.link.first} == {side}
    if fault != "nothing":
        (first,) = done.link.first
        assert first.offset == size // 2
        assert int(first.expected, 16) ^ int(first.found, 16) == 4
    finding = judged(done)["host-link-keeps-data"]
    assert (finding.status.value, finding.domain.value) == ("fail", "host")
    assert side in finding.message


def test_slow_copies_are_told(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, slow=20_000)  # 12.6 MB in 20 ms: 0.63 GB/s
    done = tried(library)
    assert done.link is not None
    assert done.link.to_card is not None
    assert 0.1 < done.link.to_card < 0.63
    assert done.copied is not None
    assert done.copied.by_driver < 2 * 0.63
    assert done.copied.rate == done.copied.by_kernel
    finding = judged(done)["host-link-is-fast"]
    assert finding.status.value == "fail"
    assert "less than a single lane of generation 3" in finding.message


def test_without_pinned_memory_the_content_is_compared_all_the_same(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, pinned=2, link="to host")
    done = tried(library)
    assert done.link is not None
    assert (done.link.pinned, done.link.to_card) == ("CUDA_ERROR_OUT_OF_MEMORY (2)", None)
    assert done.link.pageable_to_card is not None
    assert done.link.wrong == 1
    found = judged(done)
    assert found["host-link-keeps-data"].status.value == "fail"
    assert found["host-link-is-fast"].status.value == "warn"
    assert "memlock" in found["host-link-is-fast"].remedy


def test_an_error_that_memory_reports_is_named_with_its_step(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, ecc=3)  # the link verifies once, then each pass does
    done = tried(library)
    assert done.link is not None
    assert done.held is None
    (stopped,) = done.stopped
    assert (stopped.step, stopped.error) == ("held", "CUDA_ERROR_ECC_UNCORRECTABLE (214)")
    finding = judged(done)["device-memory-holds-what-is-written"]
    assert finding.status.value == "fail"
    assert "CUDA_ERROR_ECC_UNCORRECTABLE" in finding.message


def test_what_comes_after_an_error_is_left_with_the_reason(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, ecc=1)
    done = tried(library)
    assert [s.step for s in done.stopped] == ["link"]
    assert set(done.left) == {"copied", "held"}
    assert statuses(done) == {
        "launches-are-quick": "pass",
        "host-link-keeps-data": "skip",
        "host-link-is-fast": "fail",
        "device-memory-is-fast": "skip",
        "device-memory-holds-what-is-written": "skip",
    }


def test_memory_that_is_given_in_small_pieces_is_tested_all_the_same(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, largest=4 << 20, alias="100:9000")
    held = tried(library).held
    assert held is not None
    # Pieces of half of half and so on of 45.6 MiB, 2.85 MiB each: no piece of 1 MiB is left over.
    assert MEMORY * 0.95 - (1 << 20) < held.tested <= MEMORY * 0.95
    assert held.passes[0].wrong == 512


def test_a_card_whose_memory_others_hold_is_no_sound_one_and_no_broken_one(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, free=8 << 20)
    done = tried(library)
    assert done.held is not None
    assert done.held.tested <= 8 << 20
    assert statuses(done)["device-memory-holds-what-is-written"] == "warn"


def test_without_any_memory_everything_that_needs_some_is_skipped(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, largest=1000)
    done = tried(library)
    assert {s.step for s in done.stopped} == {"link", "copied"}
    found = statuses(done)
    assert found.pop("launches-are-quick") == "pass"
    assert set(found.values()) == {"skip"}


def test_a_driver_that_cannot_compile_ptx_is_no_fault_of_the_card(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, load=221)
    done = tried(library)
    assert [s.step for s in done.stopped] == ["start"]
    assert done.stopped[0].error == "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221)"
    assert set(statuses(done).values()) == {"skip"}


@pytest.mark.parametrize(("where", "kept"), [("start", False), ("verify", True)])
def test_a_hang_is_ended_and_what_was_found_before_is_kept(
    library: str, monkeypatch: pytest.MonkeyPatch, where: str, kept: bool
) -> None:
    monkeypatch.setattr(trying, "_START", 2.0)
    plant(monkeypatch, hang=where)
    done = tried(library, 1.0)
    (stopped,) = done.stopped
    assert stopped.hung
    assert stopped.step == ("link" if kept else "start")
    assert (done.launches is not None) is kept
    said = judged(done)["host-link-is-fast" if kept else "device-memory-holds-what-is-written"]
    assert said.status.value == "fail"
    assert "did not answer: not done after 3 s" in said.message


def test_a_crash_of_the_driver_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, crash="verify")
    done = tried(library)
    (stopped,) = done.stopped
    assert (stopped.step, stopped.hung) == ("link", False)
    assert "SIGABRT" in stopped.error


def test_without_time_what_is_left_out_is_said(library: str) -> None:
    done = tried(library, 0.0)
    assert dict(done.left) == dict.fromkeys(
        ("launches", "link", "copied", "held"), "no time was left"
    )
    assert set(statuses(done).values()) == {"skip"}


def test_each_card_is_tried(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, count=2)
    done = trying.try_cards(cards.look(library), 20.0, library=library)
    assert len({one.uuid for one in done}) == 2
    assert all(one.held is not None for one in done)


def test_words_are_those_of_the_published_hash() -> None:
    # splitmix64 with the seed 0: the first words that its authors' own code gives.
    first = [Pattern("random", RANDOM).word(index) for index in range(3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_the_bus_is_read_as_linux_shows_it(tmp_path: Path) -> None:
    folder = tmp_path / "0000:c1:00.0"
    folder.mkdir()
    for name, text in {
        "current_link_speed": "2.5 GT/s PCIe\n",
        "max_link_speed": "16.0 GT/s PCIe\n",
        "current_link_width": "1\n",
        "max_link_width": "16\n",
    }.items():
        (folder / name).write_text(text)
    bus = host_link.read_bus("0000:c1:00.0", tmp_path)
    assert bus == Bus(speed=2.5, width=1, most_speed=16.0, most_width=16)
    (folder / "current_link_speed").write_text("Unknown\n")
    assert host_link.read_bus("0000:c1:00.0", tmp_path) is None
    assert host_link.read_bus("0000:c2:00.0", tmp_path) is None
