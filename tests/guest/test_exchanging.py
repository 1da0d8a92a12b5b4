"""Collectives over processes on the processor (gloo), with faults planted into them.

R32 is a collective that hangs, R32b a copy that gives wrong bytes.
"""

from __future__ import annotations

import os
import time

import pytest

torch = pytest.importorskip("torch", reason="the collectives are torch's")
distributed = pytest.importorskip("torch.distributed")
if not distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

import planted  # noqa: E402, F401 - it sets how many threads a child may find

from envcheck.core import codec  # noqa: E402
from envcheck.core.collective import WITHOUT_P2P, Collective  # noqa: E402
from envcheck.guest import collective  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ALL_REDUCE = distributed.all_reduce
BROADCAST = distributed.broadcast


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in [n for n in os.environ if n.startswith("NCCL_")]:
        monkeypatch.delenv(name)


def plant(monkeypatch, function: str, spoil) -> None:
    """Have the processes call the real function, and then (or instead) what spoils it."""
    monkeypatch.setattr(distributed, function, spoil)


@pytest.mark.parametrize("cards", [2, 3, 8])
def test_good_processes_end_with_exact_results(cards, tmp_path):
    done = collective.exchange("cpu", cards, str(tmp_path))
    assert (done.backend, done.cards, done.left) == ("gloo", cards, "")
    first, second = done.modes
    assert dict(second.variables) == WITHOUT_P2P
    for mode in (first, second):
        assert (mode.holds, mode.ended, mode.hung) == (True, True, False)
        assert [(r.rank, r.reached) for r in mode.ranks] == [(n, "end") for n in range(cards)]
        # By nccl-tests each byte passes each link 2(n-1)/n times: 1, 4/3 and 7/4.
        factor = {2: 1.0, 3: 4 / 3, 8: 7 / 4}[cards]
        assert mode.bytes == 4 << 18
        expected = mode.bytes * factor / (mode.milliseconds / 1000) / 1e9
        assert mode.bus == pytest.approx(expected, rel=0.02, abs=0.001)
    assert codec.loads(Collective, codec.dumps(done), name="collective") == done


def lies(tensor, *rest, **more):
    """Lose one element, on one of the cards."""
    ALL_REDUCE(tensor, *rest, **more)
    if distributed.get_rank() == 1:
        tensor.view(-1)[1022] = 0


def test_a_lying_sum_is_found_where_it_lies(monkeypatch, tmp_path):
    plant(monkeypatch, "all_reduce", lies)
    first = collective.exchange("cpu", 2, str(tmp_path)).modes[0]
    assert (first.ended, first.holds) == (True, False)
    good, bad = first.ranks
    # What is summed again and again carries it to the others.
    assert [w.step for w in good.wrong] == ["all_reduce measured"]
    wrong = {w.step: w for w in bad.wrong}
    # At 1022 the pattern is 1022 - 1021 = 1: ones and twos add up to 3, two bits to 2.
    told = wrong["all_reduce fp32"]
    assert (told.elements, told.of, told.position) == (1, 1 << 16, 1022)
    assert (told.expected, told.found) == ("3.0", "0.0")
    assert "broadcast" not in wrong


def zeros(tensor, *rest, **more):
    BROADCAST(tensor, *rest, **more)
    if os.environ.get("NCCL_P2P_DISABLE") != "1" and distributed.get_rank() == 0:
        tensor.zero_()


def test_r32b_a_copy_that_arrives_as_zeros_is_wrong_without_the_variable_alone(
    monkeypatch, tmp_path
):
    plant(monkeypatch, "broadcast", zeros)
    first, second = collective.exchange("cpu", 2, str(tmp_path)).modes
    (told,) = first.ranks[0].wrong
    # The last of two has pattern + 1, of which none is zero.
    assert (told.step, told.elements) == ("broadcast", 1 << 16)
    assert first.ranks[1].wrong == ()
    assert second.holds


def hangs(tensor, *rest, **more):
    """Have one process never come."""
    if distributed.get_rank() == 1 and os.environ.get("NCCL_P2P_DISABLE") != "1":
        time.sleep(60)
    ALL_REDUCE(tensor, *rest, **more)


def test_r32_a_hang_ends_at_the_deadline_and_says_where(monkeypatch, tmp_path):
    plant(monkeypatch, "all_reduce", hangs)
    started = time.monotonic()
    first, second = collective.exchange("cpu", 2, str(tmp_path), deadline=4).modes
    assert time.monotonic() - started < 12
    assert (first.hung, first.ended, first.bus) == (True, False, None)
    assert {r.outcome.status for r in first.ranks} == {"timed-out"}
    assert {r.reached for r in first.ranks} == {"all_reduce fp32"}
    assert second.holds


def crashes(tensor, *rest, **more):
    if distributed.get_rank() == 1:
        os.abort()
    BROADCAST(tensor, *rest, **more)


def test_a_process_that_crashes_is_named(monkeypatch, tmp_path):
    plant(monkeypatch, "broadcast", crashes)
    first = collective.exchange("cpu", 2, str(tmp_path), deadline=5).modes[0]
    bad = first.ranks[1]
    assert (bad.outcome.status, bad.outcome.signal) == ("crashed", "SIGABRT")
    assert bad.reached == "broadcast"
    assert not first.holds
    assert first.ranks[0].outcome.status != "ok"


def test_one_card_is_not_asked_to_be_two(tmp_path):
    done = collective.exchange("cpu", 1, str(tmp_path))
    assert done.modes == ()
    assert "one card" in done.left


def test_what_the_environment_sets_is_told_and_not_done_twice(monkeypatch, tmp_path):
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    done = collective.exchange("cpu", 2, str(tmp_path))
    assert dict(done.variables) == {"NCCL_P2P_DISABLE": "1"}
    assert done.modes[0].holds
    assert done.modes[1].left == "the environment sets it already"


# The format strings of NCCL 2.30.7 (`strings libnccl.so.2`), filled in.
NCCL = """\
h:7:7 [0] NCCL INFO NET/Socket : Using [0]eth0:172.17.0.2<0>
h:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {}
h:7:9 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("P2P/CUMEM/read", "P2P/CUMEM"),
        ("P2P/CUMEM", "P2P/CUMEM"),
        ("P2P/IPC/read", "P2P/IPC"),
        ("P2P/direct pointer/read", "P2P/direct pointer"),
        ("P2P/indirect/2[2]", "P2P/indirect"),
        ("SHM/direct", "SHM"),
        ("SHM/direct/direct", "SHM"),
        ("NET/Socket/0", "NET/Socket"),
        ("NET/IB/0/GDRDMA", "NET/IB"),
    ],
)
def test_ways_are_read_from_what_nccl_says(line, way):
    assert list(collective.ways(NCCL.format(line).splitlines())) == [way]


def test_the_way_over_multicast_has_a_line_of_its_own():
    assert list(collective.ways(["h:7:9 [0] NCCL INFO Connected NVLS tree"])) == ["NVLS"]


def test_what_nccl_says_is_read_even_of_those_that_hung(monkeypatch, tmp_path):
    def speaks(tensor, *rest, **more):
        with open(os.environ["NCCL_DEBUG_FILE"], "w", encoding="utf-8") as file:
            file.write(NCCL.format("SHM/direct"))
            file.write("h:7:9 [0] init.cc:9 NCCL WARN Duplicate GPU detected : rank 0 and rank 1\n")
        time.sleep(60)

    plant(monkeypatch, "all_reduce", speaks)
    first = collective.exchange("cpu", 2, str(tmp_path), deadline=3).modes[0]
    assert first.transports == ("SHM",)
    assert first.ranks[0].warnings == ("Duplicate GPU detected : rank 0 and rank 1",)


def test_a_second_time_is_spared_where_nothing_was_copied_directly(monkeypatch, tmp_path):
    def speaks(tensor, *rest, **more):
        with open(os.environ["NCCL_DEBUG_FILE"], "w", encoding="utf-8") as file:
            file.write(NCCL.format("SHM/direct"))
        ALL_REDUCE(tensor, *rest, **more)

    plant(monkeypatch, "all_reduce", speaks)
    first, second = collective.exchange("cpu", 2, str(tmp_path)).modes
    assert first.holds
    assert second.left == "nothing was copied directly before"
