"""One piece of work in a child process of its own, with a deadline.

The child is forked, so it starts with whatever its parent has imported. Its answer comes
back as JSON through a file without a name; stdout and stderr are evidence, of which the
first and the last lines are kept. A child that crashes, exits, hangs or leaves processes
behind costs its own outcome and nothing else: all that descends from it is killed when it
ends, when its deadline passes, and when the parent is interrupted. Of a parent that is
killed outright the children die with it, though not what they themselves had started.

Not for a process whose other threads start processes of their own meanwhile: what appears
below it during `run_all` is taken for a trial's leftovers.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Thread
from typing import IO, NoReturn

from envcheck.core.compiled import Outcome
from envcheck.guest import forked, pipes
from envcheck.guest.forked import LIBC, SET_SUBREAPER, Work

_PATIENCE = 5.0
"""Seconds that a killed child may take to go (one that waits for a GPU driver does not go)."""
_MAX_ANSWER = 1 << 26
_CLOSE_ON_EXEC = 1  # of memfd_create(2)
_LAST = 19
"""The nicest that a process can be."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How the work ended, and what it returned."""

    outcome: Outcome
    value: object = None
    """None unless the outcome is `ok`."""


def run(
    work: Work, *, deadline: float, memory: int | None = None, meanwhile: Thread | None = None
) -> Trial:
    """Run one piece of work; see `run_all`."""
    return run_all([work], deadline=deadline, memory=memory, meanwhile=meanwhile)[0]


def run_all(
    works: Sequence[Work],
    *,
    deadline: float,
    parallel: int = 1,
    memory: int | None = None,
    meanwhile: Thread | None = None,
) -> tuple[Trial, ...]:
    """Run each piece of work in its own child, `parallel` at a time; trials in the order given.

    `deadline` is in seconds for each. `memory` bounds the bytes of private memory that a
    child may map, including what it has from its parent (RLIMIT_DATA). `meanwhile` is started
    after the last fork, which must not find it half done; nobody here waits for it.
    """
    strangers = set(_children())
    LIBC.prctl(SET_SUBREAPER, 1, 0, 0, 0)
    finished: dict[int, Trial] = {}
    running: dict[int, _Child] = {}
    waiting = list(enumerate(works))[::-1]
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                index, work = waiting.pop()
                running[index] = _Child(work, deadline, memory)
            if meanwhile and not waiting and meanwhile.ident is None:
                meanwhile.start()
            _listen(running.values())
            for index, child in list(running.items()):
                if child.ended():
                    finished[index] = child.finish()
                    del running[index]
                    strangers |= child.undead
                    _sweep(strangers | {c.pid for c in running.values()})
    except BaseException:
        for child in running.values():
            child.kill()
            child.finish()
        _sweep(strangers)
        raise
    return tuple(finished[index] for index in range(len(works)))


class Aside:
    """A piece of work that goes on in a child of its own while others are run; see `run_all`."""

    def __init__(self, work: Work, *, deadline: float) -> None:
        LIBC.prctl(SET_SUBREAPER, 1, 0, 0, 0)
        self._child = _Child(work, deadline, None)

    def wait(self, seconds: float) -> Trial:
        """Wait for it so long at most, then end it; may be called once."""
        self._child.until = min(self._child.until, time.monotonic() + max(seconds, 0))
        try:
            while not self._child.ended():
                _listen([self._child])
        except BaseException:
            self._child.kill()
            raise
        finally:
            ended = self._child.finish()
        return ended


def step_back() -> None:
    """Leave the processors to all others: for compiling beside what is measured on a card."""
    os.nice(_LAST)
    with contextlib.suppress(OSError):  # some sandboxes know one policy alone
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def program(arguments: Sequence[str], environment: dict[str, str] | None = None) -> Work:
    """Return work that is another program: its outcome is `exited` with the code it gave."""

    def become() -> NoReturn:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, programs expect it
        os.execve(arguments[0], list(arguments), environment or dict(os.environ))  # noqa: S606

    return become


def _nameless() -> IO[bytes]:
    """Return a file for an answer: in memory, for disks may be full and folders read-only."""
    # Asked of libc, which is often newer than the one that Python was built with.
    make = getattr(LIBC, "memfd_create", None)
    descriptor = -1 if make is None else make(b"answer", _CLOSE_ON_EXEC)
    return tempfile.TemporaryFile() if descriptor < 0 else open(descriptor, "w+b")


class _Child:
    """One running child, seen from its parent."""

    def __init__(self, work: Work, deadline: float, memory: int | None) -> None:
        self.answer = _nameless()
        (out, child_out), (err, child_err) = os.pipe(), os.pipe()
        self.streams = {"stdout": pipes.Stream(out), "stderr": pipes.Stream(err)}
        for standard in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                standard.flush()
        parent, self.started = os.getpid(), time.monotonic()
        self.until = self.started + deadline
        self.status: int | None = None
        self.late = False
        with warnings.catch_warnings():
            # Python 3.12 warns of any other thread; those of numerical libraries sleep.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if not self.pid:
            forked.become_child(work, parent, (self.answer.fileno(), child_out, child_err), memory)
        os.close(child_out)
        os.close(child_err)

    def ended(self) -> bool:
        """Say whether the child has ended; kills it when it is late."""
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self.kill()
            return True
        if time.monotonic() < self.until:
            return False
        self.late = True
        self.kill()
        return True

    def kill(self) -> None:
        """Kill what is left of the child and its group and wait for it, though not for ever."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        until = time.monotonic() + _PATIENCE
        while self.status is None and time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            else:
                time.sleep(0.002)

    @property
    def undead(self) -> set[int]:
        """The child's number when it did not go although it was killed."""
        return set() if self.status is not None else {self.pid}

    def finish(self) -> Trial:
        """Read what the ended child left."""
        for stream in self.streams.values():
            stream.drain()
            os.close(stream.descriptor)
        with self.answer as handle:
            handle.seek(0)
            answer = handle.read(_MAX_ANSWER + 1)
        outcome, value = self._outcome(answer)
        spent = round((time.monotonic() - self.started) * 1000)
        stdout, stderr = (stream.lines() for stream in self.streams.values())
        outcome = replace(outcome, stdout=stdout, stderr=stderr, milliseconds=spent)
        return Trial(outcome, value)

    def _outcome(self, answer: bytes) -> tuple[Outcome, object]:
        if self.status is None:
            return Outcome(status="timed-out", error="the process did not go when killed"), None
        if self.late:
            return Outcome(status="timed-out"), None
        if os.WIFSIGNALED(self.status):
            name = forked.signal_name(os.WTERMSIG(self.status))
            return Outcome(status="crashed", signal=name), None
        code = os.WEXITSTATUS(self.status)
        if code or not answer:
            return Outcome(status="exited", code=code), None
        try:
            said = json.loads(answer)
            if "raised" in said:
                return Outcome(status="raised", error=said["raised"]), None
            return Outcome(status="ok"), said["value"]
        except (ValueError, TypeError, KeyError, RecursionError):
            error = f"its answer of {len(answer)} bytes is unreadable or too long"
            return Outcome(status="raised", error=error), None


def _listen(running: Iterable[_Child]) -> None:
    """Read from the children until one has something to say, or for a short while."""
    with selectors.DefaultSelector() as selector:
        pause = 0.02
        for child in running:
            for stream in child.streams.values():
                if stream.closed:
                    pause = 0.002  # its end is near
                else:
                    selector.register(stream.descriptor, selectors.EVENT_READ, stream)
        for key, _ in selector.select(pause):
            key.data.read()


def _children() -> list[int]:
    """Return the processes whose parent is this one; none where /proc is not to be had."""
    mine, found = os.getpid(), []
    with contextlib.suppress(OSError):  # a kernel may lack the list that the second file is
        for thread in os.listdir(f"/proc/{mine}/task"):
            with open(f"/proc/{mine}/task/{thread}/children", "rb") as handle:
                found += [int(pid) for pid in handle.read().split()]
        return found
    with contextlib.suppress(OSError):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as handle:
                if int(handle.read().rpartition(b")")[2].split()[1]) == mine:
                    found.append(int(entry))
    return found


def _sweep(known: set[int]) -> None:
    """Kill and reap what trials left below this process, round by round: killing orphans more."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        left = set(_children()) - known
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    time.sleep(0.005)
