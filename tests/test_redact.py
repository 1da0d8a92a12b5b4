"""Names of machines and cards replaced by salted hashes."""

from __future__ import annotations

import re
import socket
import subprocess
from dataclasses import replace

import machines
import pytest
from test_native import CARD, NODES

from envcheck import redact, targets
from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.distribution import Distribution
from envcheck.core.driver_facts import DriverFacts
from envcheck.core.machine import Asked, Machine
from envcheck.core.managed import Slice
from envcheck.core.model import Environment, Inventory
from envcheck.core.redacted import is_redacted
from envcheck.judge import judge

UUID = "GPU-712d216e-9dbf-7499-bf71-e7ce8743abe8"
OTHER = UUID.replace("7499", "7498")


def facts(uuid: str = UUID, said: str = "") -> Inventory:
    driver = DriverFacts(init=0, cards=(replace(CARD, uuid=uuid),))
    cards = Cards(driver=driver, nodes=NODES, said=said, visible=uuid)
    return Inventory(source="environment", machine=Machine(asked=Asked(), cards=cards))


def uuid_of(inventory: Inventory) -> str:
    assert inventory.machine is not None
    assert inventory.machine.cards.driver is not None
    return inventory.machine.cards.driver.cards[0].uuid


def test_one_card_stays_one_card_and_two_stay_two_under_one_salt() -> None:
    one, again, other = (redact.inventory(facts(u), b"s") for u in (UUID, UUID.upper(), OTHER))
    assert is_redacted(uuid_of(one))
    assert uuid_of(one) == uuid_of(again) != uuid_of(other)
    assert one.machine is not None
    assert one.machine.cards.visible == uuid_of(one)  # what was equal inside a document too


def test_another_salt_gives_other_names() -> None:
    assert uuid_of(redact.inventory(facts(), b"s")) != uuid_of(redact.inventory(facts(), b"t"))
    assert redact.salt(None) != redact.salt(None)
    assert redact.salt("mine") == redact.salt("mine")


def addresses() -> list[str]:
    """Ask the system's own tool, where it is there, for what this machine is reached by."""
    try:
        done = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no `hostname -I` here")
    return done.stdout.split()


def test_no_name_or_address_of_this_machine_is_left() -> None:
    names = [n for n in (socket.gethostname(), *addresses()) if len(n) > 3 and n != "localhost"]
    said = " ".join(f"eth0:{name}<0>" for name in names)
    document = codec.dumps(redact.inventory(facts(said=said), b"s"))
    assert names
    assert [name for name in names if name in document] == []
    assert UUID not in document


@pytest.mark.parametrize(
    "said",
    [
        "nvidia-cusolver 12.0.4.66",
        "nvidia-cublas 13.1.1.3 of NVML 13.580.159.04",
        "127.0.0.1",
        "GPU-1 and sm_90",
        "at::Tensor c10::cuda 0000:01:00.0 12:34:56",
        "0.0.0.0:80 and ::1",
    ],
)
def test_what_names_no_machine_stays(said: str) -> None:
    redacted = redact.inventory(facts(said=said), b"s")
    assert redacted.machine is not None
    assert redacted.machine.cards.said == said


def test_what_has_nothing_to_hide_is_the_same_document() -> None:
    bare = Inventory(source="files", passed_over=3)
    assert codec.dumps(redact.inventory(bare, b"s")) == codec.dumps(bare)


def hidden(text: str, host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    redacted = redact.inventory(facts(said=text), b"s")
    assert redacted.machine is not None
    return redacted.machine.cards.said


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("NET/Socket : Using [0]eth0:10.1.2.3<0>", "10.1.2.3"),
        ("connect to tcp://10.1.2.3:29500 timed out", "10.1.2.3"),
        ("connect to [2001:db8::5]:29500 failed", "2001:db8::5"),
        ("Using eth0:fe80::242:acff:fe11:2%eth0<0>", "fe80"),
        ("ether 02:42:ac:11:00:02 txqueuelen 0", "02:42:ac:11:00:02"),
        ("/var/lib/kubelet/pods/712d216e-9dbf-7499-bf71-e7ce8743abe8/x", "712d216e"),
        ("CUDA_VISIBLE_DEVICES=GPU-712d216e names no card", "712d216e"),
        ("MIG-GPU-712d216e-9dbf-7499-bf71-e7ce8743abe8/1/0", "712d216e"),
        ("MIG-712D216E-9DBF-7499-BF71-E7CE8743ABE8", "712D216E"),
        ("node7:71:71 [0] NCCL INFO, GPU0 of Node7", "ode7"),
        ("node7.lab.example.org refused", "example"),
    ],
)
def test_no_name_of_any_machine_or_card_is_left_in_a_text(
    said: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = hidden(said, "node7", monkeypatch)
    assert secret not in shown
    assert shown.count("redacted-") >= 1


def test_one_name_is_one_hash_however_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        f"{UUID} {UUID.upper()} GPU-712d216e {UUID.removeprefix('GPU-')} 2001:db8::5 2001:DB8:0::5"
    )
    hashes = re.findall("redacted-[0-9a-f]{12}", hidden(said, "node7", monkeypatch))
    assert len(hashes) == 6
    assert len(set(hashes[:4])) == len(set(hashes[4:])) == 1


WORDS = ("machine", "torch", "cards", "default", "environment", "idle", "nvidia", "libtorch")


@pytest.mark.parametrize("host", WORDS)
def test_a_host_whose_name_is_a_word_of_ours_or_of_a_package_changes_no_fact(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    torch = Distribution(
        name="torch", version="2.9.1", record_digest="0", files=("torch/lib/libtorch.so",)
    )
    read = environment(distributions=(torch,))
    whole = replace(machines.inventory(machines.machine()), environment=read)
    redacted = redact.inventory(whole, b"s")
    assert codec.loads(Inventory, codec.dumps(redacted).encode(), name="redacted") == redacted
    assert redacted.environment == whole.environment
    assert judged(redacted) == judged(whole)


def environment(**parts: object) -> Environment:
    read = Environment(
        python="3.11.7", implementation="cpython", platform="linux-x86_64", libc="glibc 2.36",
        digest="sha256:" + "0" * 64, driver="580.159.04",
    )  # fmt: skip
    return replace(read, **parts)


def judged(whole: Inventory) -> list[tuple[str, str, bool]]:
    assert whole.machine is not None
    assert whole.machine.cards.driver is not None
    target = targets.of_card(whole.machine.cards.driver.cards[0])
    return [(f.check, f.status.value, f.required) for f in judge(target, whole, None).findings]


SLICE = "MIG-00010203-0405-0607-0809-0a0b0c0d0e10"


@pytest.mark.parametrize(
    "visible",
    [machines.UUID, machines.UUID[:12], SLICE, f"MIG-{machines.UUID}/1/0", "0", None],
)
@pytest.mark.parametrize("sliced", [False, True])
def test_a_redacted_inventory_is_judged_as_it_was(visible: str | None, *, sliced: bool) -> None:
    """Of a slice too: that it is one is told by its UUID."""
    card, device = machines.card(), machines.device()
    if sliced:
        part = Slice(uuid=SLICE, total=18 << 30, used=0)
        card = replace(card, uuid=SLICE, name="NVIDIA H200 MIG 1g.18gb", total_memory=18 << 30)
        device = machines.device(mig=True, slices=(part,))
    whole = machines.inventory(
        machines.machine(
            device, cards=machines.cards(card, visible=visible), asked=machines.asked("h200")
        )
    )
    named = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    whole = replace(whole, environment=environment(variables=named))
    redacted = redact.inventory(whole, b"s")
    assert judged(redacted) == judged(whole)
    assert ("card-is-the-one-rented", "fail", True) in judged(redacted) or not sliced
    assert "0809-0a0b0c0d0e" not in codec.dumps(redacted)
