"""The plain progress of BuildKit: which step is where, and why a build failed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from envcheck.engine.protocol import Step
from envcheck.errors import EnvcheckError, FileUnavailable

_KEPT = 600
_LINE = re.compile(r"^#(?P<id>\d+) (?P<rest>.*)$")
_STATE = re.compile(r"^(DONE (?P<seconds>[\d.]+)s|CACHED|ERROR:? .*|CANCELED)$")
_SAID = re.compile(r"^\d+\.\d+ (?P<text>.*)$")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def clean(line: str) -> str:
    """Return a line of the log without credentials and control characters."""
    return _CREDENTIALS.sub("***@", _ESCAPES.sub("", line))


class BuildLog:
    """Reads the lines of a build as they come."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._tail: deque[str] = deque(maxlen=_KEPT)

    def feed(self, line: str) -> Step | None:
        """Take one clean line; returns the step that it is about, None for any other line."""
        self._tail.append(line)
        match = _LINE.match(line)
        if match is None:
            return None
        number, rest = match["id"], match["rest"].strip()
        step = self._steps.get(number)
        if step is None:
            step = Step(id=number, name=rest, state="running")
        elif state := _STATE.match(rest):
            step = replace(step, state=_state(rest), seconds=_seconds(state["seconds"]), line="")
        else:
            said = _SAID.match(rest)
            step = replace(step, line=said["text"] if said is not None else "")
        self._steps[number] = step
        return step

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step once, in the order in which they began."""
        return tuple(replace(step, line="") for step in self._steps.values())

    def failure(self, log: str) -> EnvcheckError:
        """Return the error for a build that ended badly; `log` is where its full log lies."""
        lines = [_said(line) for line in self._tail]
        text = "\n".join(lines)
        for fault in FAULTS:
            match = fault.pattern.search(text)
            if match is not None:
                said = {k: v.strip() for k, v in match.groupdict(default="").items()}
                message = fault.message.format(**said)
                return FileUnavailable(f"{message} (log: {log})", remedy=fault.remedy)
        last = next((line for line in reversed(lines) if line.strip(" -")), "it said nothing")
        message = f"the build failed: {last[:300]} (log: {log})"
        return EnvcheckError(message, remedy=f"read {log}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One known way to fail, most specific first in `FAULTS`."""

    pattern: re.Pattern[str]
    message: str
    remedy: str


def _fault(pattern: str, message: str, remedy: str) -> Fault:
    flags = re.IGNORECASE | re.MULTILINE
    return Fault(pattern=re.compile(pattern, flags), message=message, remedy=remedy)


_OTHER_BASE = "--base IMAGE with python3 >= 3.10 and its venv module, such as python:3.12-slim"
FAULTS = (
    _fault(
        r"no space left on device|disk quota exceeded|ENOSPC",
        "the disk is full where the engine keeps images",
        "docker builder prune; docker image prune; docker system df shows what takes the space",
    ),
    _fault(
        r"exec format error",
        "the base image is for another CPU architecture than this machine",
        "--base with an image for this machine's architecture",
    ),
    _fault(
        r'exec: \\?"/bin/sh\\?": stat /bin/sh: no such file',
        "the base image has no shell",
        _OTHER_BASE,
    ),
    _fault(
        r"^envcheck: base-without-python: (?P<what>.*)$",
        "the base image has no Python: {what}",
        _OTHER_BASE,
    ),
    _fault(
        r"^envcheck: base-with-old-python: (?P<what>.*)$",
        "the base image has {what}, which is too old",
        _OTHER_BASE,
    ),
    _fault(
        r"^envcheck: base-without-venv: (?P<what>.*)$",
        "the base image's Python cannot make a venv: {what}",
        _OTHER_BASE,
    ),
    _fault(
        r"^envcheck: base-without-packages: (?P<what>.*)$",
        "the base image lacks a compiler: {what}",
        "--base with gcc and g++ in it, or one with apt-get",
    ),
    _fault(
        r"do not match the hashes from the requirements file.*(?:\n(?!\s*\S+ from ).*)*"
        r"\n\s*(?P<what>\S+) from ",
        "{what}: the index serves other bytes than the lock pins",
        "nothing was installed; ask the index's owner, or images/update_locks.py for a new lock",
    ),
    _fault(
        r"do not match the hashes from the requirements file",
        "the index serves other bytes than the lock pins",
        "nothing was installed; ask the index's owner, or images/update_locks.py for a new lock",
    ),
    _fault(
        r"hashes are required in --require-hashes mode|must have their versions pinned with ==",
        "the lock does not pin everything with a version and hashes",
        "images/update_locks.py, or uv pip compile --generate-hashes, writes such a lock",
    ),
    _fault(
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSLCertVerificationError",
        "the package index shows a certificate that is not trusted in the build",
        "--ca-file with the certificates of your network",
    ),
    _fault(
        r"\b(401|403|407) (client )?error|credentials not correct|Tunnel connection failed: 407",
        "the package index refuses the credentials",
        "--pip-config with a pip.conf that holds the index and its credentials",
    ),
    _fault(
        r"NewConnectionError|NameResolutionError|Max retries exceeded|ConnectTimeoutError"
        r"|ReadTimeoutError|Failed to establish a new connection",
        "the package index cannot be reached from the build",
        "--pip-config names a mirror; a proxy belongs into ~/.docker/config.json",
    ),
    _fault(
        r"no matching distribution found for (?P<what>\S+)",
        "{what}: the index has no wheel for the base's Python and CPU",
        "--base with another Python, or another lock",
    ),
    _fault(
        r"^E: (Failed to fetch|Unable to fetch|Unable to locate package|The repository) ?(?P<what>.*)$",
        "the base's packages cannot be installed: {what}",
        "--base with gcc, g++ and Python's headers in it needs no apt-get",
    ),
    _fault(
        r"(unexpected commit digest|failed digest verification|digest mismatch)[^\n]*",
        "the registry serves other bytes than the digest of the base image",
        "nothing was built; ask the registry's owner, or take another --base",
    ),
    _fault(
        r"^ > \[(?:internal\] load metadata for|[a-z]+ \d+/\d+\] FROM) (?P<what>\S+):$"
        r"(?:.*\n)+?.*failed to solve[^:]*: (?P<why>.{1,300})",
        "base image {what} cannot be had: {why}",
        "docker pull it once by hand, or --base with an image that is here",
    ),
    _fault(
        r"cannot connect to the docker daemon|connection refused",
        "the engine ended during the build",
        "docker info",
    ),
    _fault(
        r"exit code: 137",
        "a step of the build was killed, most likely for want of memory",
        "give the engine more memory",
    ),
)


def _state(rest: str) -> str:
    word = rest.split(" ", 1)[0].rstrip(":")
    return {"DONE": "done", "CACHED": "cached"}.get(word, "failed")


def _seconds(text: str | None) -> float | None:
    return float(text) if text else None


def _said(line: str) -> str:
    """Return what a step said, without its number and time."""
    match = _LINE.match(line)
    rest = match["rest"] if match is not None else line
    said = _SAID.match(rest)
    return said["text"] if said is not None else rest


def phases(steps: tuple[Step, ...]) -> Iterator[tuple[str, float]]:
    """Yield each stage of the Dockerfile and the seconds that its steps took."""
    totals: dict[str, float] = {}
    for step in steps:
        match = re.match(r"\[(?P<stage>[a-z]+) (\d+/\d+)?", step.name)
        stage = match["stage"] if match is not None else "engine"
        totals[stage] = totals.get(stage, 0.0) + (step.seconds or 0.0)
    yield from totals.items()
