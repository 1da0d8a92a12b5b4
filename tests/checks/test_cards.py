"""What NVML tells of the cards of a rental, judged (recipes R33 and R35)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from inventories import named
from machines import (
    H200,
    UUID,
    asked,
    card,
    cards,
    device,
    inventory,
    load,
    machine,
    span,
)  # fmt: skip

from envcheck import targets
from envcheck.checks import Question
from envcheck.core import codec
from envcheck.core.compiled import Outcome
from envcheck.core.driver_facts import DriverFacts
from envcheck.core.executed import Card, Executed
from envcheck.core.machine import Machine
from envcheck.core.managed import Counters, Managed, Process, Slice, Xid
from envcheck.core.model import Domain, Finding, Inventory
from envcheck.core.sm import Sm

CHECKS = (
    "driver-starts", "nvml-agrees-with-cuda", "card-is-the-one-rented", "card-is-healthy",
    "card-is-not-shared", "link-has-all-its-lanes", "card-keeps-its-clocks",
)  # fmt: skip


def ask(check: str, whole: Machine | None, target: str | None = None) -> list[Finding]:
    shown = whole.cards.driver.cards if whole is not None and whole.cards.driver else ()
    known = targets.of_card(shown[0]) if shown else targets.resolve(target or "hopper")
    question = Question(
        target=known, sm=Sm.parse(known.sm), driver=None, inventory=inventory(whole)
    )
    return list(named(check).run(question))


def only(check: str, whole: Machine | None) -> Finding:
    (finding,) = ask(check, whole)
    return finding


def said(check: str, whole: Machine) -> list[tuple[str, str]]:
    return [(finding.status.value, finding.message) for finding in ask(check, whole)]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("whole", [machine(), machine(asked=asked("h200", gpus=1))])
def test_m_a_healthy_h200_has_no_fault_and_no_reservation(check: str, whole: Machine) -> None:
    """It shows 150.8 GB where 141 are sold, idles at 81 W, and is held by its power limit."""
    assert [finding.status.value for finding in ask(check, whole)] == ["pass"]


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_machine_nothing_was_looked_at(check: str) -> None:
    finding = only(check, None)
    assert (finding.status.value, finding.required) == ("skip", False)
    assert "envcheck preflight" in finding.message


@pytest.mark.parametrize("check", CHECKS[1:])
def test_a_part_that_was_left_out_says_why(check: str) -> None:
    left = {"managed": "no time was left for it", "watched": "no time was left for it"}
    bare = machine(managed=None, watched=None, left=left, cards=cards())
    assert only(check, bare).status.value == "skip"
    if check != "card-is-the-one-rented":
        assert only(check, bare).message == "no time was left for it"


# The driver


@pytest.mark.parametrize(
    ("code", "status", "message", "remedy"),
    [
        (34, "error", "is a stub", "LD_LIBRARY_PATH"),
        (35, "fail", "older than the CUDA", "newer driver"),
        (36, "fail", "older than the CUDA", "newer driver"),
        (100, "fail", "finds no card that it can use", "dmesg"),
        (209, "fail", "older than the card", "newer driver"),
        (221, "fail", "libnvidia-ptxjitcompiler.so.1", "compute,utility"),
        (222, "fail", "version of PTX", "newer driver"),
        (802, "fail", "fabric manager", "nvidia-fabricmanager"),
        (803, "fail", "different versions", "compat"),
        (804, "error", "forward-compatibility", "LD_LIBRARY_PATH"),
        (999, "fail", "(999)", "reboot"),
    ],
)
def test_what_cuinit_answers_is_decoded(code: int, status: str, message: str, remedy: str) -> None:
    finding = only("driver-starts", machine(cards=cards(init=code)))
    assert finding.status.value == status
    assert message in finding.message
    assert remedy in finding.remedy
    assert finding.domain is (Domain.HOST if status == "fail" else finding.domain)


def test_variables_of_the_job_are_no_reason_to_give_a_machine_back() -> None:
    finding = only("driver-starts", machine(cards=cards(init=100, visible="7")))
    assert (finding.status.value, finding.domain) == ("error", Domain.JOB)


@pytest.mark.parametrize(
    ("mode", "status"), [("prohibited", "fail"), ("exclusive-process", "warn"), (None, "pass")]
)
def test_cards_that_the_host_closes(mode: str | None, status: str) -> None:
    finding = only("driver-starts", machine(device(compute_mode=mode)))
    assert finding.status.value == status
    assert ("nvidia-smi -i 0 -c DEFAULT" in finding.remedy) is (mode is not None)


@pytest.mark.parametrize(("flavour", "hinted"), [("proprietary", True), ("open", False)])
def test_a_card_that_the_proprietary_module_does_not_take(flavour: str, hinted: bool) -> None:
    whole = machine(cards=cards(init=100), managed=replace(H200, flavour=flavour, devices=()))
    assert ("need the open one" in only("driver-starts", whole).remedy) is hinted
    whole = machine(cards=cards(init=803), managed=replace(H200, flavour=flavour, devices=()))
    assert "need the open one" not in only("driver-starts", whole).remedy


# NVML beside CUDA


def two(first: str = "GPU-a", second: str = "GPU-b", **changes: Any) -> Machine:
    made = machine(device(uuid=first), device(uuid=second, index=1), loads=())
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("why", "one", "several"),
    [
        ("NVMLError_LibraryNotFound", "libnvidia-ml.so.1 is not here", "NCCL"),
        ("NVMLError_LibRmVersionMismatch", "different versions", "NCCL"),
        ("NVMLError_Unknown", "does not start", "NCCL"),
    ],
)
def test_an_absent_nvml_warns_and_keeps_nccl_from_starting(
    why: str, one: str, several: str
) -> None:
    finding = only("nvml-agrees-with-cuda", machine(managed=Managed(failed=why)))
    assert (finding.status.value, finding.domain) == ("warn", Domain.HOST)
    assert one in finding.message
    assert several not in finding.message
    finding = only("nvml-agrees-with-cuda", two(managed=Managed(failed=why)))
    assert finding.status.value == "fail"
    assert several in finding.message


def test_an_nvml_that_hangs_is_a_fault() -> None:
    why = "asking NVML did not end well: not done after 20 s"
    assert (
        only("nvml-agrees-with-cuda", machine(managed=Managed(failed=why))).status.value == "fail"
    )


@pytest.mark.parametrize("check", ["card-is-healthy", "card-is-not-shared"])
def test_without_nvml_no_card_is_called_healthy(check: str) -> None:
    finding = only(check, machine(managed=Managed(failed="NVMLError_LibraryNotFound")))
    assert finding.status.value == "skip"
    assert "NVMLError_LibraryNotFound" in finding.message


def test_r35_another_order_of_the_cards() -> None:
    swapped = two(cards=cards(card(uuid="GPU-b"), card(uuid="GPU-a")))
    finding = only("nvml-agrees-with-cuda", swapped)
    assert finding.status.value == "warn"
    assert "[1, 0]" in finding.message
    assert finding.remedy == "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
    # Somebody wants it so.
    chosen = two(cards=cards(card(uuid="GPU-b"), card(uuid="GPU-a"), visible="1,0"))
    assert only("nvml-agrees-with-cuda", chosen).status.value == "pass"
    # One of two is a choice, or another's.
    assert (
        only("nvml-agrees-with-cuda", two(cards=cards(card(uuid="GPU-b")))).status.value == "pass"
    )


def test_a_card_that_cuda_does_not_show_though_its_node_is_here() -> None:
    nodes = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")
    one = cards(card(uuid="GPU-a"))
    finding = only("nvml-agrees-with-cuda", two(cards=replace(one, nodes=nodes)))
    assert (finding.status.value, finding.subject) == ("warn", "card 1")
    assert "CUDA does not show it" in finding.message
    chosen = replace(one, nodes=nodes, visible="0")
    assert only("nvml-agrees-with-cuda", two(cards=chosen)).status.value == "pass"


def test_nvml_that_stops_to_answer_while_the_cards_work_is_a_reservation() -> None:
    hung = machine(watched=None, failed={"watched": "not done after 12 s"})
    finding = only("card-keeps-its-clocks", hung)
    assert (finding.status.value, finding.domain.value) == ("warn", "host")
    assert "not done after 12 s" in finding.message
    # Where it never answered, another check says so, once.
    never = replace(hung, managed=Managed(failed="NVMLError_LibraryNotFound"))
    assert only("card-keeps-its-clocks", never).status.value == "skip"


def test_a_card_that_nvml_does_not_list() -> None:
    finding = only("nvml-agrees-with-cuda", machine(cards=cards(card(uuid="GPU-z"))))
    assert finding.status.value == "warn"
    assert "NVML does not list it" in finding.message
    assert only("card-is-healthy", machine(cards=cards(card(uuid="GPU-z")))).status.value == "skip"


def test_a_driver_that_tells_no_uuid() -> None:
    """With one card on either side it is the same one; of two nobody knows which is which."""
    assert only("nvml-agrees-with-cuda", machine(cards=cards(card(uuid="")))).status.value == "pass"
    whole = two(cards=cards(card(uuid=""), card(uuid="")))
    assert said("nvml-agrees-with-cuda", whole) == [("skip", "CUDA does not tell its UUID")] * 2


# What was rented


RTX_5090 = {
    "name": "NVIDIA GeForce RTX 5090", "sm": "sm_120", "total": 32607 << 20,
    "power": {"limit": 575.0, "default": 575.0, "enforced": 575.0},
}  # fmt: skip


def rented(expect: str | None, **changes: Any) -> list[tuple[str, str]]:
    whole = machine(device(**changes), asked=asked(expect))
    return [(f.status.value, f.message) for f in ask("card-is-the-one-rented", whole)]


def test_a_5090_that_is_one() -> None:
    assert rented("rtx-5090", **RTX_5090) == [("pass", "sm_120, 34.2 GB, as rtx-5090 should be")]
    assert rented("blackwell", **RTX_5090) == [("pass", "sm_120, 34.2 GB, as blackwell should be")]
    assert rented(None, **RTX_5090) == [("pass", "sm_120, 34.2 GB")]


@pytest.mark.parametrize(
    ("name", "sm", "mib"),
    [
        # Published outputs of nvidia-smi (the table's sources stand in the check).
        ("l40s", "sm_89", 46068), ("l4", "sm_89", 23034), ("rtx-4090", "sm_89", 24564),
        ("h100", "sm_90", 81559), ("h200", "sm_90", 143771), ("rtx-5090", "sm_120", 32607),
    ],
)  # fmt: skip
def test_each_card_has_the_memory_that_its_maker_states(name: str, sm: str, mib: int) -> None:
    (reported, *_) = targets.expected(name).reported
    power = {"limit": 1000.0, "default": 1000.0, "enforced": 1000.0}
    ((status, _),) = rented(name, name=reported, sm=sm, total=mib << 20, power=power)
    assert status == "pass"
    ((status, message),) = rented(
        name, name=reported, sm=sm, total=(mib * 3 // 4) << 20, power=power
    )
    assert status == "fail"
    assert "GB of memory" in message


@pytest.mark.parametrize(
    ("expect", "changes", "status", "message"),
    [
        ("rtx-4090", {"name": "NVIDIA GeForce RTX 4090 D", "sm": "sm_89"}, "fail",
         "another product than rtx-4090, which is named NVIDIA GeForce RTX 4090"),
        ("rtx-4090", {"name": "NVIDIA GeForce RTX 4090 Laptop GPU", "sm": "sm_89"}, "fail",
         "another product"),
        ("h100", {"name": "NVIDIA H100 PCIe", "total": 81559 << 20}, "fail",
         "another product than h100"),
        ("rtx-5090", {}, "fail", "it is sm_90, rtx-5090 is sm_120"),
        ("ada", {}, "fail", "it is sm_90, ada is sm_89"),
        # A card with twice the chips, as they are sold second-hand.
        ("rtx-4090", {"name": "NVIDIA GeForce RTX 4090", "sm": "sm_89", "total": 49140 << 20},
         "warn", "it has 51.5 GB of memory, rtx-4090 has 24: somebody changed its chips"),
        ("h200", {"power": {"limit": 350.0, "enforced": 350.0}}, "warn",
         "its power is limited to 350 of 700 W (50 %)"),
        ("h200", {"power": {"limit": 700.0, "enforced": 500.0}}, "warn", "500 of 700 W (71 %)"),
        ("h200", {"power": {"limit": 600.0, "enforced": 600.0, "default": 600.0}}, "warn",
         "it is made for 600 W, h200 for 700"),
    ],
)  # fmt: skip
def test_what_is_not_what_was_rented(
    expect: str, changes: dict[str, Any], status: str, message: str
) -> None:
    ((found, text),) = rented(expect, **changes)
    assert found == status
    assert message in text


def test_nothing_expected_of_an_unknown_product_is_no_pass() -> None:
    ((status, message),) = rented(None, name="NVIDIA RTX 9999")
    assert (status, message) == ("skip", "nothing says what it should be (--expect)")


def test_a_number_of_cards() -> None:
    whole = machine(asked=asked("h200", gpus=2))
    (number, kind) = ask("card-is-the-one-rented", whole)
    assert (number.status.value, number.message) == ("fail", "1 card(s) are shown, 2 are wanted")
    assert kind.status.value == "pass"
    hidden = machine(asked=asked("h200", gpus=2), cards=cards(card(), visible="0"))
    (number, _) = ask("card-is-the-one-rented", hidden)
    assert (number.status.value, number.domain) == ("error", Domain.JOB)
    assert number.remedy == "unset CUDA_VISIBLE_DEVICES"


SLICE = Slice(uuid="MIG-1", name="NVIDIA H200 MIG 1g.18gb", total=18 << 30, used=20 << 20)
SLICED = machine(
    device(mig=True, slices=(SLICE,)),
    cards=cards(card(name="NVIDIA H200 MIG 1g.18gb", uuid="MIG-1")),
)


def test_r25_a_slice_is_no_card() -> None:
    assert said("nvml-agrees-with-cuda", SLICED)[0][0] == "pass"
    assert said("card-is-the-one-rented", replace(SLICED, asked=asked("h200"))) == [
        ("fail", "it is a slice of a card (MIG), not a whole one")
    ]
    assert said("card-is-the-one-rented", SLICED) == [
        ("warn", "it is a slice of a card (MIG), not a whole one")
    ]
    assert said("card-is-the-one-rented", replace(SLICED, managed=None, asked=asked("h200"))) == [
        ("fail", "it is a slice of a card (MIG), not a whole one")
    ]


# Health


def health(now: dict[str, Any], before: dict[str, Any] | None = None, **changes: Any) -> list[Any]:
    """Counters as they were before anything ran, and as they are now."""
    made = device(counters=now if before is None else before, **changes)
    loads = (load(after=now),)
    return said("card-is-healthy", machine(made, loads=loads))


@pytest.mark.parametrize(
    ("now", "before", "status", "message"),
    [
        ({"uncorrected_volatile": 3}, None, "fail", "3 uncorrected memory error(s) since"),
        ({"uncorrected_volatile": 3}, {"uncorrected_volatile": 1}, "fail",
         "2 uncorrected memory error(s) while it worked"),
        ({"uncorrected_aggregate": 4}, None, "warn", "4 uncorrected memory error(s) in its life"),
        # Before, nobody could tell.
        ({"uncorrected_volatile": 3}, {"uncorrected_volatile": None}, "fail",
         "3 uncorrected memory error(s) since"),
        ({"corrected_volatile": 9}, {"corrected_volatile": 2}, "warn",
         "7 corrected memory error(s) while it worked"),
        ({"remap_failed": True}, None, "fail", "could not be remapped"),
        ({"retire_pending": True}, None, "fail", "waits for the driver to be loaded anew"),
        ({"retired_pages": 63}, None, "fail", "63 pages"),
    ],
)  # fmt: skip
def test_r33_a_card_whose_memory_is_sick(
    now: dict[str, Any], before: dict[str, Any] | None, status: str, message: str
) -> None:
    ((found, text),) = health(now, before)
    assert found == status
    assert message in text


@pytest.mark.parametrize(
    "now",
    [{"corrected_volatile": 5, "corrected_aggregate": 90}, {"retired_pages": 2},
     {"remapped_correctable": 1, "remapped_uncorrectable": 2}],
)  # fmt: skip
def test_what_is_put_right_is_no_fault(now: dict[str, Any]) -> None:
    assert health(now)[0][0] == "pass"


@pytest.mark.parametrize(
    ("name", "sm", "status"),
    [("NVIDIA H200", "sm_90", "warn"), ("NVIDIA A100-SXM4-80GB", "sm_80", "warn"),
     ("NVIDIA L40S", "sm_89", "fail"), ("NVIDIA A10", "sm_86", "fail")],
)  # fmt: skip
def test_a_row_that_waits_for_a_reset(name: str, sm: str, status: str) -> None:
    """Cards that take its pages offline go on safely; the others hand them to the next program."""
    ((found, text),) = health({"remap_pending": True}, name=name, sm=sm)
    assert (found, "waits for a reset" in text) == (status, True)


HERE = "0000:00:06"


def logged(*xids: Xid, after: tuple[Xid, ...] | None = None, **changes: Any) -> Machine:
    whole = machine(device(**changes))
    assert whole.managed is not None
    assert whole.watched is not None
    later = xids if after is None else after
    return replace(
        whole, managed=replace(whole.managed, xids=xids), watched=replace(whole.watched, xids=later)
    )


@pytest.mark.parametrize("number", [48, 64, 79, 95, 119, 120])
def test_r33_xids_after_which_the_catalogue_asks_for_a_reset(number: int) -> None:
    ((status, text),) = said("card-is-healthy", logged(Xid(bus=HERE, number=number, text="")))
    assert status == "fail"
    assert text.startswith(f"Xid {number}, 1 time(s) since the host was booted")


@pytest.mark.parametrize("number", [63, 74, 94, 154, 9999])
def test_xids_of_a_card_with_a_history(number: int) -> None:
    ((status, _),) = said("card-is-healthy", logged(Xid(bus=HERE, number=number, text="")))
    assert status == "warn"


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_xids_that_programs_cause_are_evidence(number: int) -> None:
    finding = only("card-is-healthy", logged(Xid(bus=HERE, number=number, text="", count=7)))
    assert finding.status.value == "pass"
    assert finding.evidence["xids"] == {str(number): 7}


def test_an_xid_that_arises_while_it_works() -> None:
    fallen = Xid(bus=HERE, number=79, text="GPU has fallen off the bus.")
    ((status, text),) = said("card-is-healthy", logged(after=(fallen,)))
    assert (status, "while it worked: the card has fallen off the bus" in text) == ("fail", True)
    again = replace(fallen, count=2)
    ((_, text),) = said("card-is-healthy", logged(fallen, after=(again,)))
    assert "2 time(s) while it worked" in text


def test_an_xid_of_a_card_that_is_not_ours_is_a_reservation() -> None:
    whole = logged(
        Xid(bus="0000:c1:00", number=79, text=""), Xid(bus="0000:c1:00", number=31, text="")
    )
    assert [status for status, _ in said("card-is-healthy", whole)] == ["pass", "warn"]


@pytest.mark.parametrize("answer", ["NVMLError_GpuIsLost", "NVMLError_ResetRequired"])
@pytest.mark.parametrize("where", ["handle", "before", "load", "after"])
def test_a_card_that_is_lost(answer: str, where: str) -> None:
    whole = machine(device(unread={"serial": answer} if where == "before" else {}))
    if where == "handle":
        gone = replace(H200.devices[0], index=1, uuid=None, unread={"handle": answer})
        whole = machine(managed=replace(H200, devices=(H200.devices[0], gone)))
    if where == "load":
        whole = machine(loads=(load(unread={"power": answer}),))
    if where == "after":
        whole = machine(loads=(load(after={"unread": {"replays": answer}}),))
    (finding, *_) = sorted(ask("card-is-healthy", whole), key=lambda f: f.status.value != "fail")
    assert finding.status.value == "fail"
    assert answer in finding.message


def test_a_lost_card_is_not_taken_for_another_product() -> None:
    gone = replace(
        device(), name=None, sm=None, uuid=None, unread={"handle": "NVMLError_GpuIsLost"}
    )
    whole = machine(managed=replace(H200, devices=(gone,)), cards=cards(), asked=asked("h200"))
    assert said("card-is-the-one-rented", whole)[0][0] == "skip"
    assert [status for status, _ in said("card-is-healthy", whole)] == ["fail"]


def test_a_card_of_somebody_else_that_cannot_be_opened_is_no_fault() -> None:
    gone = replace(H200.devices[0], index=1, uuid=None, unread={"handle": "NVMLError_NoPermission"})
    whole = machine(managed=replace(H200, devices=(H200.devices[0], gone)))
    assert sorted(status for status, _ in said("card-is-healthy", whole)) == ["pass", "skip"]


def test_what_could_not_be_read_is_said() -> None:
    """A GeForce has no ECC; the log of the kernel is closed to most containers."""
    blind = Counters(unread={"uncorrected_volatile": "NVMLError_NotSupported"})
    whole = machine(device(), loads=(load(after=blind),))
    ((status, text),) = said("card-is-healthy", whole)
    assert (status, text) == (
        "pass", "no fault by Xids; not to be read: memory errors, remapped rows",
    )  # fmt: skip
    closed = replace(H200, devices=(device(),), xids=None, why_no_xids="Operation not permitted")
    assert whole.watched is not None
    whole = replace(whole, managed=closed, watched=replace(whole.watched, xids=None))
    ((status, text),) = said("card-is-healthy", whole)
    assert status == "skip"
    assert "NVMLError_NotSupported, Operation not permitted" in text


# Shared


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"counters": {"used": 499_000_000}}, "pass", "499 MB"),
        ({"counters": {"used": 1_200_000_000}}, "warn", "1.2 GB of its memory were taken"),
        ({"processes": (Process(pid=5, kind="compute", memory=None),)}, "warn", "1 process(es)"),
        ({"processes": (Process(pid=5, kind="graphics", memory=9),)}, "pass", ""),
        # In a container nobody is seen, and their memory is.
        ({"processes": (), "counters": {"used": 9_000_000_000}}, "warn", "9.0 GB"),
        ({"processes": None}, "pass", ""),
        # An older NVML counts what the driver reserves: 0.64 GB on an H200.
        ({"reserved": None, "counters": {"used": 644_939_776}}, "pass", ""),
        ({"reserved": None, "counters": {"used": 3_000_000_000}}, "warn", "3.0 GB"),
        ({"counters": {"used": None}}, "skip", "its memory is not known"),
    ],
)
def test_who_is_on_the_card(changes: dict[str, Any], status: str, message: str) -> None:
    ((found, text),) = said("card-is-not-shared", machine(device(**changes)))
    assert found == status
    assert message in text


@pytest.mark.parametrize("looked", [True, False])
def test_taken_memory_is_told_once(looked: bool) -> None:
    """What torch finds taken is card-is-usable's, unless NVML saw it before anything ran."""
    whole = machine(device(counters={"used": 90_000_000_000}))
    made = inventory(whole if looked else None)
    ran = Executed(
        outcome=Outcome(status="ok"),
        card=Card(
            name="NVIDIA H200", sm="sm_90", uuid=UUID, total_memory=150_000_000_000,
            free_memory=60_000_000_000, driver="580.159.04", mig=False,
        ),
        torch="2.14.1",
    )  # fmt: skip
    target = targets.of_card(card())
    question = Question(target=target, sm=Sm.parse("sm_90"), driver=None,
                        inventory=replace(made, executed=ran))  # fmt: skip
    told = {
        check: [f.message for f in named(check).run(question) if f.status.value == "warn"]
        for check in ("card-is-usable", "card-is-not-shared")
    }
    assert [len(told["card-is-usable"]), len(told["card-is-not-shared"])] == [not looked, looked]


def test_of_a_sliced_card_only_the_slice_counts() -> None:
    full = device(mig=True, slices=(SLICE,), counters={"used": 90_000_000_000},
                  processes=(Process(pid=1, kind="compute"),))  # fmt: skip
    whole = replace(SLICED, managed=replace(H200, devices=(full,)))
    assert said("card-is-not-shared", whole) == [
        ("pass", "21 MB of its memory are used, by no job")
    ]
    taken = replace(SLICE, used=4_000_000_000)
    whole = replace(SLICED, managed=replace(H200, devices=(device(mig=True, slices=(taken,)),)))
    assert said("card-is-not-shared", whole)[0][0] == "warn"


# Clocks


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"reasons": {"power-cap": 50}}, "pass", "held by its power limit in 100% of the time"),
        ({"reasons": {"hw-thermal": 3, "hw-slowdown": 3}}, "warn", "in 6% of the time"),
        ({"reasons": {"hw-thermal": 25, "hw-slowdown": 25}}, "fail", "too hot"),
        ({"reasons": {"power-brake": 40}}, "fail", "the power supply brakes it"),
        ({"reasons": {"hw-slowdown": 2}}, "pass", ""),  # a change of clocks, nvml.h says
        ({"reasons": {"hw-slowdown": 30}}, "fail", "cut to a half"),
        ({"reasons": {"sw-thermal": 5}}, "warn", "for its heat"),
        ({"reasons": {"sw-thermal": 5, "hw-thermal": 5}}, "warn", "too hot"),
        ({"temperature": span(least=40, median=80, most=89)}, "warn", "reached 89 °C"),
        ({"temperature": span(least=40, median=80, most=88)}, "pass", "88 °C at most"),
        ({"sm_clock": span(least=345, median=600, most=900)}, "warn", "stayed below 900 of 1980"),
        ({"sm_clock": span(least=345, median=600, most=990)}, "pass", ""),
        ({"reasons": None}, "pass", "what holds its clocks is not told"),
        ({"reasons": None, "sm_clock": None, "unread": {"reasons": "NVMLError_NotSupported"}},
         "skip", "NVMLError_NotSupported"),
        ({"busy": 4}, "skip", "4 of 60 samples found it at work"),
    ],
)  # fmt: skip
def test_what_holds_the_clocks(changes: dict[str, Any], status: str, message: str) -> None:
    whole = machine(loads=(load(**changes),))
    ((found, text),) = said("card-keeps-its-clocks", whole)
    assert found == status
    assert message in text


# Link


def linked(generation: int, width: int, busy: int = 50, **changes: Any) -> Machine:
    seen = load(
        busy=busy, generation=span(least=1, median=generation, most=generation),
        width=span(least=width, median=width, most=width),
    )  # fmt: skip
    return machine(device(virtualization="none", **changes), loads=(seen,))


@pytest.mark.parametrize(
    ("whole", "status", "message"),
    [
        (linked(5, 16), "pass", "PCIe 5 x16 under load"),
        (linked(5, 8), "warn", "the card can PCIe 5 x16: 1/2 of its rate"),
        (linked(4, 16), "warn", "1/2 of its rate"),
        (linked(4, 8), "warn", "1/4 of its rate"),
        (linked(3, 4), "warn", "1/16 of its rate"),
        (linked(1, 1), "fail", "PCIe 1 x1 under load, the card can PCIe 5 x16: 1/256"),
        # NVML counts what card and slot can do together: the kernel knows the card.
        (linked(3, 1, link={"max_width": 1, "max_generation": 3}), "fail", "1/64"),
        (linked(5, 1, link={"max_width": 1, "card_width": None}), "warn", "is not known"),
        (linked(5, 8, link={"max_width": 8, "card_width": None}), "skip", "is not known"),
        # A card that is made with eight lanes.
        (linked(5, 8, link={"max_width": 8, "card_width": 8}), "pass", ""),
        # Idle it sleeps at generation 1, and nobody saw it at work.
        (linked(1, 16, busy=4), "skip", "not seen at work long enough"),
    ],
)
def test_r33_lanes_and_generation_under_load(whole: Machine, status: str, message: str) -> None:
    ((found, text),) = said("link-has-all-its-lanes", whole)
    assert found == status
    assert message in text


def test_a_virtual_machine_may_show_a_link_of_its_own_making() -> None:
    real = linked(1, 1)
    assert real.managed is not None
    inside = replace(real.managed.devices[0], virtualization="passthrough")
    whole = replace(real, managed=replace(real.managed, devices=(inside,)))
    assert said("link-has-all-its-lanes", whole)[0][0] == "warn"


def test_packets_that_are_sent_again() -> None:
    assert len(said("link-has-all-its-lanes", machine(loads=(load(after={"replays": 8}),)))) == 1
    (_, (status, text)) = said(
        "link-has-all-its-lanes", machine(loads=(load(after={"replays": 9}),))
    )
    assert (status, text.startswith("9 packets were sent again in 12 s")) == ("warn", True)


def test_a_watcher_that_saw_only_another_card() -> None:
    whole = machine(loads=(load(uuid="GPU-other"),))
    assert said("link-has-all-its-lanes", whole)[0][0] == "skip"
    assert said("card-keeps-its-clocks", whole)[0][0] == "skip"


def test_a_machine_without_a_driver_is_told_once() -> None:
    none = replace(
        cards(), driver=DriverFacts(missing="libcuda.so.1: cannot open"), nodes=(), module=None
    )
    whole = machine(cards=none, managed=Managed(failed="NVMLError_LibraryNotFound"), watched=None)
    statuses = {check: [s for s, _ in said(check, whole)] for check in CHECKS}
    assert statuses["driver-starts"] == ["fail"]
    assert all(found == ["skip"] for check, found in statuses.items() if check != "driver-starts")
    assert UUID not in str(statuses)


def test_a_machine_survives_the_file_that_keeps_it() -> None:
    whole = inventory(machine(asked=asked("rtx-5090", gpus=2), loads=(load(), load(index=1))))
    assert codec.loads(Inventory, codec.dumps(whole), name="inventory") == whole
