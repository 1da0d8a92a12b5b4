"""Each installed extension, called on the card, gives what plain PyTorch gives in float64."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.checks import ran
from envcheck.checks.check import Check, Question
from envcheck.core.executed import Executed
from envcheck.core.model import Finding, Status
from envcheck.core.names import normalise

# Of PyTorch itself, which the core operations call.
_CALLED = ("torch", "triton", "pytorch-triton")


def _run(question: Question) -> Iterator[Finding]:
    executed = question.executed
    if executed is None:
        yield CHECK.skip("extensions", question.why_not_executed)
        return
    if "extensions" not in executed.parts:
        yield CHECK.skip("extensions", "were not asked for")
        return
    groups = list(ran.of_part(executed, "extensions"))
    yield from (ran.judge(CHECK, question, name, runs) for name, runs in groups)
    uncovered = list(_uncovered(question, executed))
    for name, why in uncovered:
        remedy = 'name it in envcheck.toml: [[extensions]] name = ..., smoke = "path.py:function"'
        yield CHECK.finding(name, Status.WARN, why, remedy=remedy)
    if not groups and not uncovered:
        yield CHECK.skip("extensions", "none is installed")


def _uncovered(question: Question, executed: Executed) -> Iterator[tuple[str, str]]:
    """Yield what holds device code and was not called: by name, with the reason."""
    covered = {name for s in executed.smoked for name in (*s.distributions, normalise(s.module))}
    for extension in question.compiled.extensions if question.compiled is not None else ():
        if normalise(extension.name) not in covered:
            yield extension.name, "was named, and no smoke test covers it: it was not called"
            covered.add(normalise(extension.name))
    environment = question.inventory.environment
    holds = {file.path for file in question.inventory.files if file.containers}
    for each in environment.distributions if environment is not None else ():
        known = each.name in covered or each.name in _CALLED or each.name.startswith("nvidia-")
        if not known and holds & set(each.files):
            yield each.name, "holds device code, and no smoke test covers it: it was not called"


CHECK = Check(
    id="extensions-match-reference",
    claim="Each installed extension gives on the card what plain PyTorch gives in float64.",
    how=(
        "Calls the main operation of each extension that the smoke catalogue covers, forward "
        "and backward, and the functions that envcheck.toml names, each extension in a process of "
        "its own. An installed package with device code that nothing covers is a warning."
    ),
    classes=("H1", "I1"),
    remedy="Install a build for this PyTorch and card, or name a smoke test for what is not covered.",
    runs=("extensions",),
    run=_run,
)
