"""Each extension that the user named was built, holds what was asked for, and can be imported."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.checks.check import Check, Question
from envcheck.core import coverage
from envcheck.core.compiled import Extension
from envcheck.core.model import Finding, Json, Status
from envcheck.core.sm import Sm

_TAIL = 5
_ERROR = re.compile(r"\b(fatal )?error\b ?[:#]|undefined reference|not found", re.IGNORECASE)
# What pip says around the output of a build, which holds the cause.
_PIPS = re.compile(
    r"error: (subprocess-exited-with-error|metadata-generation-failed|failed-wheel-build.*)"
    r"|note: This (error originates from a subprocess|is an issue with the package)\b.*"
    r"|hint: See above for details\.|ERROR: Failed (building wheel|to build)\b.*|Failed to build .*"
    r"|\[(end of output|\d+ lines? of output)\]|Encountered error while generating .*"
    r"|.+ did not run successfully\.|exit code: \d+|See above for output\."
)


def _run(question: Question) -> Iterator[Finding]:
    compiled = question.compiled
    if compiled is None:
        yield CHECK.skip("extensions", question.why_not_compiled)
    elif not compiled.extensions:
        yield CHECK.skip("extensions", "no extension was named")
    else:
        yield from (_judge(question, one) for one in compiled.extensions)


def _judge(question: Question, one: Extension) -> Finding:
    files = _files(question, one)
    held = {path: tuple(map(str, sms)) for path, sms in files.items()}
    evidence: dict[str, Json] = {
        "origin": one.origin,
        "seconds": one.seconds,
        "said": one.said,
        "imported": one.imported.status if one.imported is not None else None,
        "stderr": one.imported.stderr if one.imported is not None else (),
        "sass": held,
    }
    if one.built is False:
        why = one.message or _cause(one.said) or "it said nothing"
        message = f"its build from {one.origin} fails: {why}"
        return CHECK.finding(one.name, Status.FAIL, message, evidence=evidence)
    if one.imported is None:
        message = "was not imported"
        return CHECK.finding(one.name, Status.SKIP, message, evidence=evidence)
    if not one.imported.ok:
        message = f"import {one.name} fails: {one.message or one.imported.status}"
        return CHECK.finding(one.name, Status.FAIL, message, evidence=evidence)
    lacking = [path for path, sms in files.items() if not _holds(sms, question.sm)]
    if one.built and lacking:
        has = ", ".join(held[lacking[0]]) or "no machine code"
        message = (
            f"was built here for {question.sm}, but {lacking[0]} holds {has}: its build ignores "
            "TORCH_CUDA_ARCH_LIST"
        )
        remedy = f"take the fixed -gencode flags out of {one.origin}"
        return CHECK.finding(one.name, Status.WARN, message, remedy=remedy, evidence=evidence)
    if one.built and one.cuda_sources and not held:
        message = (
            "built and imported, but nothing of its .cu files is in it: most likely its setup.py "
            "asks torch.cuda.is_available(), which is False without a card"
        )
        remedy = "build its CUDA code regardless of torch.cuda.is_available()"
        return CHECK.finding(one.name, Status.WARN, message, remedy=remedy, evidence=evidence)
    return CHECK.finding(one.name, Status.PASS, _praise(one, held), evidence=evidence)


def _cause(said: tuple[str, ...]) -> str:
    """Return the first error in what a build said, or its last lines, without pip's own."""
    lines = [line.strip(" \u00d7\u2502\u2570\u2500>") for line in said]
    lines = [line for line in lines if line and _PIPS.fullmatch(line) is None]
    errors = (line for line in lines if _ERROR.search(line))
    return next(errors, " | ".join(lines[-_TAIL:]))


def _praise(one: Extension, held: dict[str, tuple[str, ...]]) -> str:
    names = sorted({sm for sms in held.values() for sm in sms})
    how = "built and imported" if one.built else "imported"
    return f"{how}, not run; holds {', '.join(names)}" if names else f"{how}, not run"


def _holds(sms: tuple[Sm, ...], target: Sm) -> bool:
    return any(sm.number == target.number for sm in sms)


def _files(question: Question, one: Extension) -> dict[str, tuple[Sm, ...]]:
    """Return the device code of the files that came with an extension, by path."""
    environment = question.inventory.environment
    top = one.name.partition(".")[0]
    owned = {
        path
        for distribution in (environment.distributions if environment is not None else ())
        if any(_is_of(path, top) for path in distribution.files)
        for path in distribution.files
    }
    return {
        file.path: coverage.codes(file, "sass")
        for file in question.inventory.files
        if file.skipped is None and (file.path in owned or _is_of(file.path, top))
    }


def _is_of(path: str, top: str) -> bool:
    """Say whether a file lies in a package, or is the module of that name."""
    first, inside, _ = path.partition("/")
    return first == top if inside else first.split(".")[0] == top


CHECK = Check(
    id="extensions-import",
    claim="Each extension that was named builds for the card and can be imported.",
    how=(
        "Builds extensions from sources with the toolchain for exactly the target, reads the built "
        "files, and imports each in a process of its own: one that crashes, calls exit(1) or lacks "
        "a library costs its own finding. Its smoke test needs the card."
    ),
    classes=("B2",),
    remedy="Read the last lines of its build, or the message of its import.",
    run=_run,
)
