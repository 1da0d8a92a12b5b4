"""NVML on a real card: what it tells, beside nvidia-smi, and what is seen while the card works."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from inventories import named
from own_python import python

from envcheck import targets
from envcheck.checks import Question
from envcheck.core import codec
from envcheck.core.cards import Cards
from envcheck.core.driver_facts import DriverCard
from envcheck.core.machine import Asked, Machine
from envcheck.core.managed import Managed, Watched
from envcheck.core.model import Inventory
from envcheck.core.sm import Sm

# Memory is set and copied to for four seconds by the driver alone, in a trial beside the watcher.
WORK = """
import ctypes, json, time
from envcheck.core import codec
from envcheck.guest import cards, devices, trial
from envcheck.guest.driver import Driver
from envcheck.guest.watching import Watcher

def work():
    driver, context, memory = Driver(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(1 << 28)
    driver.call("cuInit", 0)
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    driver.call("cuCtxSetCurrent", context)
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), size)
    host, until = ctypes.create_string_buffer(size.value), time.monotonic() + 4
    while time.monotonic() < until:
        for _ in range(50):
            driver.call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), size)
        driver.call("cuMemcpyHtoD_v2", memory, host, size)
        driver.call("cuCtxSynchronize")

shown, managed = cards.look(), devices.look()
with Watcher() as watcher:
    ended = trial.run(work, deadline=60)
assert ended.outcome.ok, ended.outcome
assert watcher.result() is not None, watcher.why
print(json.dumps([codec.to_json(each) for each in (shown, managed, watcher.result())]))
"""


@pytest.fixture(scope="module")
def machine(card: DriverCard) -> Machine:
    done = python("-c", WORK)
    assert done.returncode == 0, done.stderr
    shown, managed, watched = json.loads(done.stdout)
    return Machine(
        asked=Asked(),
        cards=codec.from_json(Cards, shown, "cards"),
        managed=codec.from_json(Managed, managed, "managed"),
        watched=codec.from_json(Watched, watched, "watched"),
    )


def test_nvml_tells_what_nvidia_smi_shows(machine: Machine) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("no nvidia-smi to compare with")
    assert machine.managed is not None
    fields = "uuid,name,memory.total,power.limit,vbios_version,pcie.link.width.max"
    done = subprocess.run(
        [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    assert len(rows) == len(machine.managed.devices)
    for (uuid, name, total, limit, vbios, width), device in zip(
        rows, machine.managed.devices, strict=True
    ):
        assert (device.uuid, device.name, device.vbios) == (uuid, name, vbios)
        assert device.total is not None
        assert abs((device.total >> 20) - int(total)) <= 1
        if device.power.limit is not None:
            assert device.power.limit == pytest.approx(float(limit), abs=0.1)
        if device.link.max_width is not None:
            assert device.link.max_width == int(width)


def test_every_value_that_is_none_has_a_reason(machine: Machine) -> None:
    assert machine.managed is not None
    for device in machine.managed.devices:
        for field in ("name", "uuid", "serial", "sm", "temperature", "sm_clock", "reasons", "gsp"):
            assert (getattr(device, field) is None) is (field in device.unread), field


def test_the_first_card_was_seen_at_work(machine: Machine) -> None:
    assert machine.watched is not None
    assert machine.cards.driver is not None
    (first, *_) = machine.cards.driver.cards
    (load,) = (each for each in machine.watched.cards if each.uuid == first.uuid)
    assert load.samples >= 10
    assert load.busy >= 10
    assert load.sm_clock is not None
    assert load.after is not None


@pytest.mark.parametrize(
    "check",
    ["driver-starts", "nvml-agrees-with-cuda", "card-is-the-one-rented", "card-is-healthy",
     "card-keeps-its-clocks", "link-has-all-its-lanes"],
)  # fmt: skip
def test_a_card_on_which_tests_run_is_not_sick(
    machine: Machine, card: DriverCard, check: str
) -> None:
    target = targets.of_card(card)
    question = Question(
        target=target, sm=Sm.parse(target.sm), driver=None,
        inventory=Inventory(source="environment", machine=machine),
    )  # fmt: skip
    found = list(named(check).run(question))
    assert found
    assert [f.message for f in found if f.status.value in ("fail", "error")] == []
