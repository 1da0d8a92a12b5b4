"""The wall clock agrees with the times of files."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core.host import Clock, Disk
from envcheck.core.model import Domain, Finding, Json, Status

# Amazon S3 refuses a signed request whose time is further from its own (RequestTimeTooSkewed), and so
# do services that copied it: with such a clock no data can be fetched.
REFUSED = 15 * 60
# The coarsest times that a file system has (FAT), so nothing that compares them minds less.
COARSEST = 2.0
# 2025-01-01, before envcheck was written: no clock that is right tells of an earlier day.
WRITTEN = 1_735_689_600


def _run(question: Question) -> Iterator[Finding]:
    machine = question.machine
    host = machine.host if machine is not None else None
    if host is None or host.clock is None:
        yield CHECK.skip("clock", question.why_not_looked("host.clock"))
        return
    clock, disk = host.clock, host.disk
    remedy = "chronyc makestep (or timedatectl set-ntp true) on the host"
    if clock.now < WRITTEN:
        message = "it tells of a time before envcheck was written: it was never set"
        yield _of("clock", clock, disk, Status.FAIL, message, remedy)
    elif clock.own is not None and clock.own > COARSEST:
        message = f"files of envcheck were written {_span(clock.own)} after now: it was set back"
        status = Status.FAIL if clock.own > REFUSED else Status.WARN
        if status is Status.FAIL:
            message += ", so signed requests and certificates are refused"
        yield _of("clock", clock, disk, status, message, remedy)
    elif disk is not None and disk.ahead is not None and abs(disk.ahead) > COARSEST:
        way = "ahead of" if disk.ahead > 0 else "behind"
        message = (
            f"the time of a new file is {_span(abs(disk.ahead))} {way} the clock: what compares"
            " times of files (ninja, caches) is misled"
        )
        yield _of(disk.folder, clock, disk, Status.WARN, message, "set the file server's clock")
    else:
        against = [
            name
            for name, known in (
                ("files of envcheck", clock.own is not None),
                ("a new file's time", disk is not None and disk.ahead is not None),
            )
            if known
        ]
        if not against:
            yield CHECK.skip("clock", "there was no other time to compare it with")
            return
        message = f"agrees with {' and '.join(against)}, as far as these tell"
        yield _of("clock", clock, disk, Status.PASS, message)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _of(
    subject: str, clock: Clock, disk: Disk | None, status: Status, message: str, remedy: str = ""
) -> Finding:
    evidence: dict[str, Json] = {
        "now_seconds": clock.now,
        "own_files_ahead_seconds": clock.own,
        "new_file_ahead_seconds": disk.ahead if disk is not None else None,
        "boot_and_uptime_ahead_seconds": clock.boot,
    }
    return CHECK.finding(subject, status, message, remedy=remedy, domain=Domain.HOST,
                         evidence=evidence)  # fmt: skip


CHECK = Check(
    id="clock-is-right",
    claim="The wall clock agrees with the times of files.",
    how=(
        "Without a network: compares the clock with the newest of envcheck's own files, which are not "
        "from the future unless it was set back, and with the time that the disk gives a new file. It "
        "fails beyond the 15 minutes that services allow a signed request. A clock that is ahead is "
        "not seen."
    ),
    remedy="Have the host's clock set, or use another host.",
    runs=("machine",),
    run=_run,
)
