"""Names of machines and cards replaced by salted hashes."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace

import pytest
from test_native import CARD, NODES

from envcheck import redact
from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverFacts
from envcheck.core.machine import Asked, Machine
from envcheck.core.model import Inventory
from envcheck.core.redacted import is_redacted

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
    ],
)
def test_what_names_no_machine_stays(said: str) -> None:
    redacted = redact.inventory(facts(said=said), b"s")
    assert redacted.machine is not None
    assert redacted.machine.cards.said == said


def test_what_has_nothing_to_hide_is_the_same_document() -> None:
    bare = Inventory(source="files", passed_over=3)
    assert codec.dumps(redact.inventory(bare, b"s")) == codec.dumps(bare)
