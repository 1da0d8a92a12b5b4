"""NVML through its real binding, answered by a library of our own (tests/fake_nvml.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import machines
import pytest
from inventories import ask as ask_check

from envcheck.core import codec
from envcheck.core.managed import Counters, Device, Managed, Process, Range, Slice, Watched, Xid
from envcheck.guest import devices, kernel_log, nvidia_module

LOOK = """
from envcheck.core import codec
from envcheck.guest import devices
print(codec.dumps(devices.look(float({seconds}))))
"""
WATCH = """
import time
from envcheck.core import codec
from envcheck.guest.watching import Watcher
with Watcher() as watcher:
    time.sleep({seconds})
print(codec.dumps(watcher.result()) if watcher.result() else watcher.why)
"""


def ask(program: str, library: Path | None, told: dict[str, object]) -> str:
    where = {"LD_LIBRARY_PATH": str(library)} if library is not None else {}
    variables = {f"nvml{name}": str(answer) for name, answer in told.items()}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **where, **variables},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def look(library: Path | None, *, seconds: float = 20, **told: object) -> Managed:
    return codec.loads(Managed, ask(LOOK.format(seconds=seconds), library, told), name="managed")


def only(library: Path, **told: object) -> Device:
    (device,) = look(library, **told).devices
    return device


def watch(library: Path, *, seconds: float = 1.6, **told: object) -> Watched:
    return codec.loads(Watched, ask(WATCH.format(seconds=seconds), library, told), name="watched")


def test_each_answer_of_a_healthy_card_has_its_place(nvml: Path) -> None:
    """The library's answers are those that an H200 gave (driver 580.159.04)."""
    found = look(nvml)
    assert (found.failed, found.driver, found.nvml) == (None, "580.159.04", "13.580.159.04")
    (card,) = found.devices
    assert (card.index, card.name, card.sm) == (0, "NVIDIA H200", "sm_90")
    assert card.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (card.serial, card.vbios) == ("1600000000001", "96.00.A5.00.1A")
    assert (card.total, card.free, card.reserved) == (150754820096, 150109880320, 644939776)
    assert (card.mig, card.persistence, card.compute_mode) == (False, True, "default")
    assert (card.ecc, card.ecc_after_reboot, card.virtualization) == (True, True, "passthrough")
    link, power = card.link, card.power
    assert (link.generation, link.width, link.max_generation, link.max_width) == (5, 16, 5, 16)
    assert (link.card_generation, power.limit, power.default) == (5, 700.0, 700.0)
    assert (power.least, power.most, power.enforced, power.usage) == (200.0, 700.0, 700.0, 81.7)
    assert (card.temperature, card.slowdown_at, card.shutdown_at) == (38, 89, 95)
    assert (card.sm_clock, card.memory_clock) == (345, 3201)
    assert (card.max_sm_clock, card.max_memory_clock) == (1980, 3201)
    assert (card.reasons, card.performance_state, card.processes) == (("idle",), 0, ())
    assert card.gsp == "580.159.04"
    counted = card.counters
    assert counted == Counters(
        corrected_volatile=0, uncorrected_volatile=0, corrected_aggregate=0,
        uncorrected_aggregate=0, remapped_correctable=0, remapped_uncorrectable=0,
        remap_pending=False, remap_failed=False, replays=0, used=0, unread=counted.unread,
    )  # fmt: skip
    # Hopper remaps rows and retires no pages.
    assert set(counted.unread) == {"retired_pages", "retire_pending"}
    assert set(counted.unread.values()) == {"NVMLError_NotSupported"}
    # Its bus, ff:1f.7, is no card of this machine.
    assert set(card.unread) == {"numa", "card_width"}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (9, "NVMLError_DriverNotLoaded"),
        (17, "NVMLError_OperatingSystem"),
        (18, "NVMLError_LibRmVersionMismatch"),
        (999, "NVMLError_Unknown"),
        (4711, "NVMLError 4711"),
    ],
)
def test_an_nvml_that_does_not_start_says_why(nvml: Path, code: int, name: str) -> None:
    assert look(nvml, InitWithFlags=f"!{code}").failed == name
    assert look(nvml, DeviceGetCount_v2=f"!{code}").failed == name


def test_no_library_at_all() -> None:
    if nvidia_module.version() is not None:
        pytest.skip("this machine has a driver, and its NVML")
    assert look(None).failed == "NVMLError_LibraryNotFound"


def test_one_that_hangs_or_crashes_costs_only_itself(nvml: Path) -> None:
    started = time.monotonic()
    assert "not done after" in (look(nvml, seconds=1, DeviceGetName="hang").failed or "")
    assert time.monotonic() - started < 20
    assert "SIGABRT" in (look(nvml, DeviceGetName="crash").failed or "")


FIELDS = {
    "DeviceGetName": ("name", None), "DeviceGetUUID": ("uuid", None),
    "DeviceGetSerial": ("serial", None), "DeviceGetCudaComputeCapability": ("sm", None),
    "DeviceGetVbiosVersion": ("vbios", None), "DeviceGetMigMode": ("mig", None),
    "DeviceGetComputeMode": ("compute_mode", None), "DeviceGetEccMode": ("ecc", None),
    "DeviceGetTemperature": ("temperature", None), "DeviceGetClockInfo": ("sm_clock", None),
    "DeviceGetTemperatureThreshold": ("slowdown_at", None),
    "DeviceGetVirtualizationMode": ("virtualization", None),
    "DeviceGetPerformanceState": ("performance_state", None),
    "DeviceGetGspFirmwareVersion": ("gsp", None),
    "DeviceGetPowerManagementLimit": ("limit", "power"),
    "DeviceGetPowerManagementDefaultLimit": ("default", "power"),
    "DeviceGetCurrPcieLinkGeneration": ("generation", "link"),
    "DeviceGetMaxPcieLinkWidth": ("max_width", "link"),
    "DeviceGetRemappedRows": ("remap_failed", "counters"),
    "DeviceGetPcieReplayCounter": ("replays", "counters"),
    "DeviceGetTotalEccErrors": ("uncorrected_volatile", "counters"),
}  # fmt: skip


@pytest.mark.parametrize("function", FIELDS)
@pytest.mark.parametrize(
    ("code", "name"), [(3, "NVMLError_NotSupported"), (15, "NVMLError_GpuIsLost")]
)
def test_what_has_no_answer_is_none_with_the_reason_and_costs_nothing_else(
    nvml: Path, function: str, code: int, name: str
) -> None:
    card, (field, part) = only(nvml, **{function: f"!{code}"}), FIELDS[function]
    assert getattr(getattr(card, part) if part else card, field) is None
    reasons = card.counters.unread if part == "counters" else card.unread
    assert name in (reasons.get(field), reasons.get("remapped"))
    assert card.max_memory_clock == 3201  # what is asked before and after
    assert card.total == 150754820096


def test_a_driver_before_510_lacks_functions_and_tells_the_rest(old_nvml: Path) -> None:
    card = only(old_nvml, DeviceGetComputeRunningProcesses_v2="77/1000")
    assert (card.name, card.total, card.reserved) == ("NVIDIA H200", 150754820096, None)
    assert card.unread["reserved"] == "NVMLError_FunctionNotFound"
    assert card.counters.used == 644939776  # with what the driver reserves: it does not tell apart
    assert card.reasons == ("idle",)  # by the older call
    assert card.processes == (Process(pid=77, kind="compute", memory=1000),)
    assert card.gsp is None
    assert card.unread["gsp"] == "NVMLError_FunctionNotFound"
    assert card.counters.remap_failed is None
    assert card.counters.unread["remapped"] == "NVMLError_FunctionNotFound"


def test_a_card_that_is_lost_is_listed_among_the_others(nvml: Path) -> None:
    lost = {"DeviceGetHandleByIndex_v2_0": "!15"}
    first, second = look(nvml, DeviceGetCount_v2=2, **lost).devices
    assert (first.index, first.name, first.unread) == (0, None, {"handle": "NVMLError_GpuIsLost"})
    assert (second.index, second.name) == (1, "NVIDIA H200")


def test_sick_counters_and_who_is_on_the_card(nvml: Path) -> None:
    card = only(
        nvml, DeviceGetTotalEccErrors="1,2,3,4", DeviceGetRemappedRows="5,6,1,1",
        DeviceGetRetiredPages=2, DeviceGetRetiredPagesPendingStatus=1,
        DeviceGetMemoryInfo_v2="100,10,50,40",
        DeviceGetComputeRunningProcesses_v2=f"10/1024,0/{(1 << 64) - 1}",
    )  # fmt: skip
    counted = card.counters
    assert (counted.corrected_volatile, counted.corrected_aggregate) == (1, 2)
    assert (counted.uncorrected_volatile, counted.uncorrected_aggregate) == (3, 4)
    assert (counted.remapped_correctable, counted.remapped_uncorrectable) == (5, 6)
    assert (counted.remap_pending, counted.remap_failed) == (True, True)
    # Two for each of the two causes.
    assert (counted.retired_pages, counted.retire_pending, counted.used) == (4, True, 40)
    assert card.processes == (
        Process(pid=10, kind="compute", memory=1024), Process(pid=0, kind="compute", memory=None),
    )  # fmt: skip


def test_slices_of_a_card(nvml: Path) -> None:
    told = {"DeviceGetName_100": "NVIDIA H200 MIG 1g.18gb", "DeviceGetUUID_100": "MIG-1",
            "DeviceGetMemoryInfo_v2_100": "20,1,18,1"}  # fmt: skip
    card = only(nvml, DeviceGetMigMode="1,1", DeviceGetMigDeviceHandleByIndex=1, **told)
    assert card.mig is True
    assert card.slices == (Slice(uuid="MIG-1", name="NVIDIA H200 MIG 1g.18gb", total=20, used=1),)
    assert "slices" not in card.unread


def test_a_width_of_nothing_is_not_known(nvml: Path) -> None:
    card = only(nvml, DeviceGetCurrPcieLinkWidth=0)
    assert (card.link.width, card.unread["width"]) == (None, "NVML says 0")


def test_what_the_kernel_says_of_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "0000:01:00.0"
    folder.mkdir()
    monkeypatch.setattr(devices, "_PCI", str(tmp_path))
    bus = "00000000:01:00.0"
    for name, meaning, said, value in (
        ("max_link_width", devices._lanes, "16", 16),
        ("max_link_width", devices._lanes, "255", None),
        ("max_link_width", devices._lanes, "0", None),
        ("max_link_speed", devices._generation, "32.0 GT/s PCIe", 5),
        ("max_link_speed", devices._generation, "8 GT/s", 3),  # as older kernels write
        ("max_link_speed", devices._generation, "Unknown", None),
        ("numa_node", devices._node, "-1", None),
        ("numa_node", devices._node, "1", 1),
        ("numa_node", devices._node, "", None),
    ):
        (folder / name).write_text(f"{said}\n")
        card = devices.nvml.Asked()
        assert devices._of_kernel(card, "field", bus, name, meaning) == value, said
        assert list(card.unread) == ([] if value is not None else ["field"])
    card = devices.nvml.Asked()
    assert devices._of_kernel(card, "field", "00000000:02:00.0", "numa_node", devices._node) is None
    assert card.unread["field"].endswith("0000:02:00.0/numa_node: No such file or directory")


LOG = """\
[    1.3] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
[ 10.0] NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 11.0] NVRM: Xid (PCI:0000:C1:00): 31, pid=1896, name=secret job, Ch 0000000b
[ 12.0] NVRM: Xid (PCI:0000:c1:00): 31, pid=1897, Ch 0000000c
[ 13.0] NVRM: Xid (0000:03:00): 62, 0096(1c54) 00000000 00000000
[ 14.0] NVRM: Xid (PCI:0002:01:00 GPU-I:05): 94, Contained: SM (0x1)
[ 15.0] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 12028, Non-fatal
[ 16.0] NVRM: Xid (PCI:0000:41:00): 154
""".splitlines()


def test_xids_of_a_log() -> None:
    """The forms of lines are those of public reports (0000:03:00: a driver of 2014)."""
    fallen = "GPU has fallen off the bus."
    assert kernel_log.find(LOG) == (
        Xid(bus="0000:01:00", number=79, text=fallen),
        Xid(bus="0000:c1:00", number=31, text="Ch 0000000b", count=2),
        Xid(bus="0000:03:00", number=62, text="0096(1c54) 00000000 00000000"),
        Xid(bus="0002:01:00", number=94, text="Contained: SM (0x1)"),
        Xid(bus="0000:41:00", number=154, text=""),
    )


def test_a_log_that_nobody_may_read_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> str:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel_log, "_whole", refused)
    gone = str(tmp_path / "kmsg")
    assert kernel_log.xids(gone) == (
        None, f"{gone}: No such file or directory; syslog(2): Operation not permitted",
    )  # fmt: skip
    Path(gone).write_text("\n".join(LOG))
    found, why = kernel_log.xids(gone)
    assert found is not None
    assert (len(found), why) == (5, "")


def test_the_log_of_this_machine_is_read_or_says_why() -> None:
    started = time.monotonic()
    found, why = kernel_log.xids()
    assert (found is None) is bool(why)
    assert time.monotonic() - started < 10


def test_what_is_kept_of_a_card_under_load(nvml: Path) -> None:
    """Idle, then busy: of the first samples nothing is kept but their number."""
    watched = watch(
        nvml, DeviceGetUtilizationRates="0;0;90;70;80", DeviceGetCurrPcieLinkGeneration="1;1;3;5",
        DeviceGetCurrentClocksEventReasons="1;1;4;68;4", DeviceGetClockInfo="345,3201",
        DeviceGetPowerUsage="80000;80000;400000;600000;500000",
        DeviceGetTotalEccErrors="0,0,2,2", DeviceGetPcieReplayCounter=9,
    )  # fmt: skip
    (card,) = watched.cards
    assert 1.5 < watched.seconds < 30
    assert card.busy == card.samples - 2
    assert card.samples >= 5
    assert card.generation == Range(least=3, median=5, most=5)
    assert card.power == Range(least=400.0, median=500.0, most=600.0)
    assert card.sm_clock == Range(least=345, median=345, most=345)
    assert card.utilization is not None
    assert (card.utilization.least, card.utilization.most) == (70, 90)
    assert card.reasons == {"power-cap": card.busy, "hw-thermal": 1}
    assert card.after is not None
    assert (card.after.uncorrected_volatile, card.after.replays) == (2, 9)
    assert card.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_copies_count_as_load_though_no_kernel_runs(nvml: Path) -> None:
    (card,) = watch(nvml, seconds=0.5, DeviceGetCurrentClocksEventReasons=0).cards
    assert card.busy == card.samples > 0


def test_a_card_that_is_lost_while_it_works(nvml: Path) -> None:
    (card,) = watch(nvml, seconds=0.9, DeviceGetUtilizationRates="50;50;!15").cards
    assert card.unread["utilization"] == "NVMLError_GpuIsLost"


def test_trials_run_beside_it_and_leave_it_alone(nvml: Path) -> None:
    """They kill whatever appears below this process while they run; it was there before."""
    program = WATCH.format(seconds=0.5).replace(
        "    time.sleep", "    for _ in range(3): trial.run_all([lambda: 1] * 3, deadline=9)\n    time.sleep"
    ).replace("import time", "import time\nfrom envcheck.guest import trial", 1)  # fmt: skip
    said = codec.loads(
        Watched, ask(program, nvml, {"DeviceGetUtilizationRates": 9}), name="watched"
    )
    assert said.cards[0].busy == said.cards[0].samples > 1


def test_a_watcher_that_hangs_does_not_hold_up_the_work(nvml: Path) -> None:
    program = WATCH.format(seconds=0.3).replace(
        "import time\n",
        "import time\nfrom envcheck.guest import watching\nwatching._PATIENCE = 1\n",
    )
    said = ask(program, nvml, {"DeviceGetUtilizationRates": "hang"})
    assert said.startswith("not done after")


def test_a_watcher_without_nvml_says_why(nvml: Path) -> None:
    said = ask(WATCH.format(seconds=0.3), nvml, {"InitWithFlags": "!9"})
    assert "NVMLError_DriverNotLoaded" in said


def test_a_watcher_ends_with_its_parent(nvml: Path) -> None:
    program = (
        "import os, signal\nfrom envcheck.guest.watching import Watcher\n"
        "with Watcher() as watcher:\n"
        "    print(watcher._aside._child.pid, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "LD_LIBRARY_PATH": str(nvml)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    pid, until = int(json.loads(done.stdout)), time.monotonic() + 10
    while _runs(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_r33_from_the_library_to_the_finding(nvml: Path) -> None:
    """Each sick state as NVML answers it, read by its binding and judged."""
    sick = {
        "DeviceGetTotalEccErrors": ("0,0,3,3", "card-is-healthy", "fail"),
        "DeviceGetRemappedRows": ("0,1,0,1", "card-is-healthy", "fail"),
        "DeviceGetRetiredPagesPendingStatus": (1, "card-is-healthy", "fail"),
        "DeviceGetPerformanceState": ("!15", "card-is-healthy", "fail"),
        "DeviceGetMemoryInfo_v2": (
            "150754820096,644939776,1,9000000000",
            "card-is-not-shared",
            "warn",
        ),
        "DeviceGetComputeRunningProcesses_v2": ("77/1000", "card-is-not-shared", "warn"),
        "DeviceGetPowerManagementLimit": (350000, "card-is-the-one-rented", "warn"),
        "DeviceGetName": ("NVIDIA H200 NVL", "card-is-the-one-rented", "fail"),
        "DeviceGetComputeMode": (2, "driver-starts", "fail"),
        "InitWithFlags": ("!12", "nvml-agrees-with-cuda", "warn"),
    }
    for function, (answer, check, status) in sick.items():
        managed = look(nvml, **{function: answer})
        whole = machines.machine(
            managed=managed, watched=None, asked=machines.asked("h200"),
            cards=machines.cards(machines.card()),
        )  # fmt: skip
        found = ask_check(check, machines.inventory(whole), "sm_90")
        assert status in [finding.status.value for finding in found], function
