"""Libraries that others open by name while they work are where the loader looks."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import commands
from envcheck.checks import linking_words as words
from envcheck.checks.check import Check, Question
from envcheck.checks.remedies import owner
from envcheck.core.linking import ByName
from envcheck.core.model import Finding, Status


def _run(question: Question) -> Iterator[Finding]:
    linked = question.inventory.linked
    if linked is None or linked.skipped:
        reason = linked.skipped if linked is not None else words.NO_ENVIRONMENT
        yield CHECK.skip("libraries", reason)
        return
    openers: dict[str, list[ByName]] = {}
    for one in linked.by_name:
        if owner(one.opener, question).startswith("jax-cuda"):
            continue  # the check of JAX knows which of them it cannot do without
        openers.setdefault(one.opener, []).append(one)
    for opener, every in openers.items():
        yield _judge(question, opener, every)
    if not openers:
        yield CHECK.skip("libraries", "no library here is known to open others by name")


def _judge(question: Question, opener: str, every: list[ByName]) -> Finding:
    absent = [one.name for one in every if one.path is None]
    evidence = {"found": tuple(one.path for one in every if one.path is not None)}
    if not absent:
        if (needed := _lacking(question, every)) is not None:
            opened, library = needed
            who = words.whose(opener, question)
            message = f"{who}: opens {opened} while it works, which needs {library}, and that is"
            remedy = commands.for_torchs_library(library, question)
            return CHECK.finding(
                opener, Status.FAIL, f"{message} not there", remedy=remedy, evidence=evidence
            )
        message = f"what it opens by name is there: {', '.join(one.name for one in every)}"
        return CHECK.finding(opener, Status.PASS, message, evidence=evidence)
    more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
    package = owner(opener, question)
    who = words.whose(opener, question)
    message = f"{who}: opens {absent[0]}{more} while it works, which the loader does not find"
    if "cudnn-jit" in package:
        # That package compiles all engines at run time, and brings no others.
        return CHECK.finding(opener, Status.WARN, message, required=False, evidence=evidence)
    remedy = commands.again(package, question) if package else ""
    return CHECK.finding(opener, Status.FAIL, message, remedy=remedy, evidence=evidence)


def _lacking(question: Question, every: list[ByName]) -> tuple[str, str] | None:
    """Return a library that is there and cannot be loaded, and what it lacks."""
    linked = question.inventory.linked
    found = {one.path: one.name for one in every if one.path is not None}
    for opened in linked.files if linked is not None else ():
        # What lies elsewhere in the environment may have been opened before.
        nowhere = [lib.name for lib in words.lacking(opened) if not lib.elsewhere]
        if opened.path in found and nowhere:
            return found[opened.path], nowhere[0]
    return None


CHECK = Check(
    id="libraries-opened-by-name-are-there",
    claim="The libraries that others open by name while they work are where the loader looks.",
    how=(
        "Reads the names out of the libraries that open them (libnvrtc its builtins, cuDNN its "
        "parts, PyTorch its linear algebra) and looks for each as dlopen would, from the library "
        "that asks, and for what it needs itself. One that is missing is noticed at the first operation that needs it, not at "
        "import (class D4)."
    ),
    classes=("D1", "D4"),
    remedy="Reinstall the package that the library belongs to.",
    run=_run,
)
