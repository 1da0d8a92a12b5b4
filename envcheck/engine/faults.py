"""Why a build failed: known words of its log, each with its cause and its remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from envcheck.errors import EnvcheckError, FileUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One known way to fail."""

    pattern: re.Pattern[str]
    message: str
    remedy: str


def explain(lines: Sequence[str], known: Sequence[Fault], log: str) -> EnvcheckError:
    """Return the error for a log's last lines by the first fault that fits; `log` is its path."""
    text = "\n".join(lines)
    for fault in known:
        match = fault.pattern.search(text)
        if match is not None:
            said = {k: v.strip() for k, v in match.groupdict(default="").items()}
            message = fault.message.format(**said)
            return FileUnavailable(f"{message} (log: {log})", remedy=fault.remedy)
    last = next((line for line in reversed(lines) if line.strip(" -")), "it said nothing")
    message = f"the build failed: {last[:300]} (log: {log})"
    return EnvcheckError(message, remedy=f"read {log}")


def _fault(pattern: str, message: str, remedy: str) -> Fault:
    flags = re.IGNORECASE | re.MULTILINE
    return Fault(pattern=re.compile(pattern, flags), message=message, remedy=remedy)


_FULL = r"no space left on device|disk quota exceeded|ENOSPC"
_NO_WHEEL = r"no matching distribution found for (?P<what>\S+)"
_UNREACHABLE = (
    r"NewConnectionError|NameResolutionError|Max retries exceeded|ConnectTimeoutError"
    r"|ReadTimeoutError|Failed to establish a new connection"
)
_NO_VENV = r"^envcheck: base-without-venv: (?P<what>.*)$"
_OTHER_BYTES = "the index serves other bytes than the lock pins"
_NEW_LOCK = "nothing was installed; ask the index's owner, or images/update_locks.py for a new lock"
_INSTALLING = (
    _fault(
        r"do not match the hashes from the requirements file.*(?:\n(?!\s*\S+ from ).*)*"
        r"\n\s*(?P<what>\S+) from ",
        f"{{what}}: {_OTHER_BYTES}",
        _NEW_LOCK,
    ),
    _fault(r"do not match the hashes from the requirements file", _OTHER_BYTES, _NEW_LOCK),
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
)
"""What an installation says wherever it runs."""

_OTHER_BASE = "--base IMAGE with python3 >= 3.10 and its venv module, such as python:3.12-slim"
IMAGE = (
    _fault(
        _FULL,
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
    _fault(_NO_VENV, "the base image's Python cannot make a venv: {what}", _OTHER_BASE),
    _fault(
        r"^envcheck: base-without-packages: (?P<what>.*)$",
        "the base image lacks a compiler: {what}",
        "--base with gcc and g++ in it, or one with apt-get",
    ),
    *_INSTALLING,
    _fault(
        _UNREACHABLE,
        "the package index cannot be reached from the build",
        "--pip-config names a mirror; a proxy belongs into ~/.docker/config.json",
    ),
    _fault(
        _NO_WHEEL,
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
"""How builds of images fail, most specific first."""

VENV = (
    _fault(
        _FULL,
        "the disk is full where the environment is built",
        "another folder, or make space: torch with its CUDA libraries takes 6 GB",
    ),
    _fault(
        r"Permission denied: (?P<what>\S+)|Read-only file system: (?P<other>\S+)",
        "the build may not write to {what}{other}",
        "a folder that you may write to",
    ),
    _fault(
        _NO_VENV,
        "this Python cannot make a venv: {what}",
        "apt install python3-venv, or --python with another interpreter",
    ),
    _fault(
        r"^envcheck: ended by signal 9$",
        "a step of the build was killed, most likely for want of memory",
        "close what takes memory, or build on a machine with more",
    ),
    *_INSTALLING,
    _fault(
        _UNREACHABLE,
        "the package index cannot be reached",
        "--pip-config names a mirror, HTTPS_PROXY a proxy",
    ),
    _fault(
        _NO_WHEEL,
        "{what}: the index has no wheel for this Python and CPU",
        "--python with another version, or another lock",
    ),
)
"""How builds of environments on this machine fail."""
