"""What NVIDIA's catalogue says of Xids, and whose card a line of the log is about.

The catalogue: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as its rows stand
in NVIDIA/NVSentinel, gpu-health-monitor/xiderrorsmapping.csv (its 162 rows, read 2026-12).
"""

from __future__ import annotations

from envcheck.core.managed import Xid

# "Immediate action" RESET_GPU, RESTART_BM or RESTART_VM, and 48, whose workflow ends in a reset:
# no job should run on the card before that, and who rents it in a container cannot do it.
SICK = {
    46: "the card timed out",
    48: "an uncorrectable memory error",
    62: "its power controller halted",
    64: "a bad row or page of memory could not be put out of use",
    79: "the card has fallen off the bus",
    95: "an uncontained memory error",
    109: "a context switch timed out",
    110: "a security fault",
    119: "its firmware (GSP) does not answer",
    120: "its firmware (GSP) failed",
    136: "NVLink could not be trained",
    140: "an unrecovered memory error",
    143: "the card could not be initialised",
    151: "a key rotation failed",
    155: "NVLink has an error",
    156: "a part of the card was put out of use, a reset is due",
    158: "the card had a fatal timeout",
    160: "a channel of memory was put out of use, a reboot is due",
    162: "the catalogue asks for a reset",
}
# RESTART_APP, IGNORE, CHECK_UVM and WORKFLOW_XID_45 of no hardware: what a program did.
OF_PROGRAMS = frozenset(
    [
        *(8, 11, 13, 14, 25, 31, 32, 37, 38, 39, 40, 41, 43, 44, 45, 60, 66, 67, 68, 69, 70),
        *(71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, *range(96, 108), 121),
        *(*range(126, 136), 137, 139, 141, 152, 153, 159),
    ]
)
# The same actions, but the hardware is at fault: the card has recovered, and has a history.
RECOVERED = {
    63: "a bad row or page of memory was marked to be put out of use",
    74: "an error of NVLink, which a card at its other end may have caused",
    92: "a high rate of corrected memory errors",
    93: "its InfoROM was written too often",
    94: "a contained memory error",
    154: "the recovery that it needs has changed",
    157: "a part of the card could not be put out of use",
    161: "a channel of memory could not be put out of use",
}


def meaning(number: int) -> str:
    """Return what a number stands for, as far as it is known here."""
    return SICK.get(number) or RECOVERED.get(number) or "see NVIDIA's catalogue of Xids"


def place(bus: str) -> tuple[int, ...] | None:
    """Return domain, bus and device; NVML writes `00000000:01:00.0`, the log `0000:01:00`."""
    parts = bus.partition(".")[0].split(":")
    try:
        return tuple(int(part, 16) for part in parts) if len(parts) == 3 else None
    except ValueError:
        return None


def arisen(before: tuple[Xid, ...], after: tuple[Xid, ...]) -> set[tuple[str, int]]:
    """Return (bus, number) of those that the log has more of than before."""
    counts = {(xid.bus, xid.number): xid.count for xid in before}
    return {(x.bus, x.number) for x in after if x.count > counts.get((x.bus, x.number), 0)}
