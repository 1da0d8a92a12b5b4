"""Installed files are as they were installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks import commands
from envcheck.checks.check import Check, Question
from envcheck.core.installed import Differing, Records
from envcheck.core.model import Finding, Json, Status

_WORDS = {
    "missing": "missing",
    "empty": "empty, as after a full disk",
    "size": "of another size",
    "hash": "of another content",
    "unreadable": "not to be read",
}

# Without these no import of a package works, whatever was trimmed: a module that Python loads as
# machine code, and what a package begins with.
_VITAL = re.compile(r"\.(cpython-\w+|abi3)[\w.-]*\.so$|^[^/]+/__init__\.py$")

# Installers that leave files as RECORD says. Debian, which names none, strips libraries afterwards,
# and conda writes its own folder into them.
_EXACT = ("pip", "uv", "poetry", "pdm")


def _run(question: Question) -> Iterator[Finding]:
    environment = question.inventory.environment
    installed = environment.installed if environment is not None else None
    if installed is None or not installed.records.sized:
        yield CHECK.skip("files", "no RECORD with sizes was found")
        return
    exact = {
        f"{p.name} {p.version}"
        for p in installed.packages
        if (p.installer or "").lower().startswith(_EXACT)
    }
    found = [
        f
        for d in installed.records.differing
        if (f := _of(d)) is not None and (d.owner in exact or d.how not in ("size", "hash"))
    ]
    yield from found
    if not found:
        message, minor = f"{_looked(installed.records)}", _minor(installed.records)
        yield CHECK.finding("files", Status.PASS, f"as installed: {message}{minor}")


def _looked(records: Records) -> str:
    rest = records.sized - records.hashed
    return f"{records.sized} files by size, {records.hashed} by hash too ({rest} were not hashed)"


def _minor(records: Records) -> str:
    other = sum(d.count for d in records.differing)
    return f"; {other} more differ: data, or changed by who packs them" if other else ""


def _of(differing: Differing) -> Finding | None:
    """Judge one package's files; data and notes that are gone are no fault: images are trimmed."""
    if not differing.compiled and not differing.code and differing.how != "unreadable":
        return None
    gone = differing.how == "missing" and differing.count >= differing.of > 0
    broken = bool(differing.compiled) and (differing.how == "empty" or gone)
    vital = [path for path in differing.paths if _VITAL.search(path) and "/test" not in path]
    broken = broken or (differing.how in ("missing", "empty") and bool(vital))
    others = f" and {differing.count - 1} more" if differing.count > 1 else ""
    message = (
        f"{(vital or differing.paths)[0]}{others}: {_WORDS[differing.how]}, against its RECORD"
    )
    if gone:
        message = f"its metadata is there, but {differing.count} of {differing.of} files are gone"
    name, _, version = differing.owner.partition(" ")
    evidence: dict[str, Json] = {
        "how": differing.how,
        "count": differing.count,
        "compiled": differing.compiled,
        "paths": differing.paths,
    }
    return CHECK.finding(
        differing.owner,
        Status.FAIL if broken else Status.WARN,
        message,
        remedy=commands.again_as(name, version),
        evidence=evidence,
    )


CHECK = Check(
    id="files-match-record",
    claim="Installed files are those that their packages' RECORD names, as far as compared.",
    how=(
        "Compares the size of every file with RECORD, and the hash of compiled files up to 1 MiB; "
        "how many were not hashed is said. An empty compiled file, a compiled package of which only "
        "the metadata is left, and an extension module or the first file of a package that is "
        "gone or empty, fail. Code that is missing, of another size or content "
        "warns: somebody trimmed, stripped or patched it, or an installation was cut short. Sizes "
        "of packages that the system or conda installed are changed on purpose; files "
        "that several packages own are judged by one-distribution-owns-each-file, and data "
        "that is gone is no fault."
    ),
    classes=("D4",),
    remedy="Install the package again.",
    run=_run,
)
