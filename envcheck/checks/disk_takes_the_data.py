"""The disk where the data will lie can be written, and has the room that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.host import Disk
from envcheck.core.model import Domain, Finding, Json, Status

_HERE = "."
_WHY = {
    "EROFS": "is on a read-only file system",
    "EACCES": "may not be written by this user",
    "EPERM": "may not be written by this user",
    "ENOSPC": "is on a full disk",
    "EDQUOT": "is at the quota of this user",
    "ENOTDIR": "is no folder",
}

_OF_JOB = ("EACCES", "EPERM", "ENOTDIR")
"""What another folder of the same machine would not have."""


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    host = machine.host if machine is not None else None
    if machine is None or host is None or host.disk is None:
        yield CHECK.skip("disk", question.why_not_looked("host.disk"))
        return
    disk, asked = host.disk, machine.asked.disk
    wrong, remedy = _wrong(disk, asked)
    stopped = host.unread.get("disk")
    if stopped is not None:
        wrong = f"did not take a file and give it back: {stopped}"
    elif disk.refused is not None and machine.asked.folder == _HERE and asked is None:
        # Nobody said that the data will lie where the command was started.
        yield _of(disk, Status.WARN, f"{wrong}, and no --data names another folder", asked, remedy)
        return
    if wrong is not None:
        domain = Domain.JOB if disk.refused in _OF_JOB else Domain.HOST
        yield _of(disk, Status.FAIL, wrong, asked, remedy, domain)
        return
    if disk.free is None and asked is not None:
        message = (
            f"does not tell how much is free: the {_gb(asked)} that were asked for are not sure"
        )
        yield _of(disk, Status.WARN, message, asked)
        return
    yield _of(disk, Status.PASS, _good(disk, asked), asked)


def _wrong(disk: Disk, asked: int | None) -> tuple[str | None, str]:
    elsewhere = "df -h lists the disks: --data FOLDER names one on another"
    if disk.refused is not None:
        why = _WHY.get(disk.refused, "refuses to be written")
        after = f" after {disk.written >> 20} MiB" if disk.written else ""
        if disk.refused in _OF_JOB:
            return f"{why} ({disk.refused})", "--data FOLDER names one that this user may write to"
        return f"{why}{after} ({disk.refused})", elsewhere
    if asked is not None and disk.free is not None and disk.free < asked:
        return (
            f"has {_gb(disk.free)} free of the {_gb(asked)} that were asked for",
            "rent a larger disk, or " + elsewhere,
        )
    if disk.inodes == 0:
        return "takes no more files: all inodes are in use", "df -i shows it; " + elsewhere
    return None, ""


def _good(disk: Disk, asked: int | None) -> str:
    """Say what was measured. How fast a job wants to read is not known, so no rate is too low."""
    parts = [f"{_gb(disk.free)} free" if disk.free is not None else "tells of no size"]
    if disk.write_rate:
        parts.append(f"writes {disk.write_rate / 1e6:.0f} MB/s")
    if disk.read_rate:
        parts.append(f"reads {disk.read_rate / 1e6:.0f} MB/s")
    if disk.files_rate:
        parts.append(f"{disk.files_rate:.0f} small files a second")
    if asked and disk.write_rate:
        parts.append(f"{_gb(asked)} are written in {asked / disk.write_rate / 60:.0f} min")
    kind = disk.filesystem or "an unknown file system"
    parts.append(f"{kind}, over the network" if disk.network else kind)
    if disk.missing:
        parts.append("the folder itself is not there yet")
    return ", ".join(parts)


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _of(
    disk: Disk,
    status: Status,
    message: str,
    asked: int | None,
    remedy: str = "",
    domain: Domain = Domain.HOST,
) -> Finding:
    evidence: dict[str, Json] = {
        "free_bytes": disk.free,
        "asked_bytes": asked,
        "inodes": disk.inodes,
        "filesystem": disk.filesystem,
        "network": disk.network,
        "refused": disk.refused,
        "written_bytes": disk.written,
        "write_bytes_per_second": disk.write_rate,
        "read_bytes_per_second": disk.read_rate,
        "direct": disk.direct,
        "files_per_second": disk.files_rate,
    }
    return CHECK.finding(disk.folder, status, message, remedy=remedy, domain=domain,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="disk-takes-the-data",
    claim="The disk where the data will lie can be written, and has the room that was asked for.",
    how=(
        "Writes up to 256 MiB there, until they are on the disk, reads them past the page cache, "
        "makes and removes 200 small files, and asks for what is left. It fails where nothing can "
        "be written, where that does not end, and where less is free than --disk says; "
        "it warns where the folder is the current one for want of --data. The rates are told and "
        "decide nothing: what a job needs is not known."
    ),
    remedy="Lay the data on another disk, or rent a larger one.",
    runs=("machine",),
    run=_run,
)
