"""libc and the compiler's libraries define the versions that the compiled files want."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import linking_words as words
from envcheck.checks.check import Check, Question
from envcheck.core.linking import MissingVersion, Opened
from envcheck.core.model import Domain, Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    linked = question.inventory.linked
    if linked is None or linked.skipped:
        reason = linked.skipped if linked is not None else words.NO_ENVIRONMENT
        yield CHECK.skip("libc", reason)
        return
    if not linked.looked_at:
        yield CHECK.skip("libc", "there are no compiled files")
        return
    found = [
        _judge(question, opened, version)
        for opened in linked.files
        if (version := _highest(opened)) is not None
    ]
    yield from found
    if not found:
        have = ", ".join(f"{name} {newest}" for name, newest in linked.defined.items())
        message = f"{linked.looked_at} files want no newer version than is there"
        message += f" ({have})" if have else ""
        yield CHECK.finding("libc", Status.PASS, message)


def _highest(opened: Opened) -> MissingVersion | None:
    missing = [v for v in opened.versions if words.is_libc(v.library)]
    return max(missing, key=lambda v: (v.library, _numbers(v.name)), default=None)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.replace("_", ".").split(".")
    return tuple(int(part) for part in parts if part.isdecimal() and part.isascii())


def _judge(question: Question, opened: Opened, version: MissingVersion) -> Finding:
    who = words.whose(opened.path, question)
    newest = f", which has at most {version.newest}" if version.newest else ""
    by = f" (wanted by {version.by})" if version.by != opened.path else ""
    message = f"{who}: wants {version.name} of {version.library}; found is {version.found}"
    message += newest + by
    required = opened.module or opened.torch
    return CHECK.finding(
        opened.path,
        Status.FAIL if required else Status.WARN,
        message,
        remedy=_remedy(version),
        domain=Domain.IMAGE,
        required=required,
        evidence={"elsewhere": version.elsewhere},
    )


def _remedy(version: MissingVersion) -> str:
    if version.elsewhere:
        folder = version.elsewhere[0].rpartition("/")[0]
        return f"export LD_LIBRARY_PATH={folder}"
    if version.library.startswith(("libc.so", "libm.so", "ld-linux")):
        number = version.name.rpartition("_")[2]
        return (
            f"use an image with glibc {number} or newer, or a build of the package for older ones"
        )
    return f"install a newer {version.library}, such as that of the compiler it was built with"


CHECK = Check(
    id="libc-is-new-enough",
    claim="libc, libstdc++ and libgomp define the versions that the compiled files want.",
    how=(
        "Compares the versions that each file wants (`.gnu.version_r`) with those that the copy "
        "which the loader finds for it defines. A newer one ends in `version GLIBC_2.38 not "
        "found`; an older libstdc++ that comes first on the loader's path is named (class C5)."
    ),
    classes=("C5",),
    remedy="Use a newer base image, or take the older copy off the loader's path.",
    run=_run,
)
