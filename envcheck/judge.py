"""Judge an inventory for a target: pure, so the same inventory gives the same report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envcheck.checks import CHECKS, Check, Question
from envcheck.core import cuda
from envcheck.core.cuda import Version
from envcheck.core.decision import decide
from envcheck.core.model import (
    Assurance,
    Domain,
    Finding,
    Inventory,
    Json,
    Report,
    Status,
    Target,
    Verdict,
)
from envcheck.core.sm import Sm

_REACHED = {
    Assurance.SCANNED: "bytes were read, nothing was compiled or run",
    Assurance.COMPILED: "kernels compiled for it, nothing run on a card",
    Assurance.EXECUTED: "kernels ran on such a card",
}
_ANSWERS = (Status.PASS, Status.WARN)
"""What a check says that looked at something, where it fails nothing."""
_ORDER = (Assurance.SCANNED, Assurance.COMPILED, Assurance.EXECUTED)


def judge(
    target: Target,
    inventory: Inventory,
    driver: Version | None,
    checks: tuple[Check, ...] = CHECKS,
    *,
    require: Assurance = Assurance.SCANNED,
    asked: frozenset[str] | None = None,
) -> Report:
    """Run the checks and fold the findings into one verdict.

    `asked` are the ids of those that count, None for all. With less assurance than `require` there is nothing wrong, but not enough that is known to
    be right: that is inconclusive.
    """
    question = Question(target=target, sm=Sm.parse(target.sm), driver=driver, inventory=inventory)
    findings = tuple(
        finding
        for check in checks
        for finding in (
            _ask(check, question) if asked is None or check.id in asked else [_not_asked(check)]
        )
    )
    verdict, assurance = fold(findings, checks), reached(findings, checks)
    if verdict is Verdict.COMPATIBLE and _ORDER.index(assurance) < _ORDER.index(require):
        verdict = Verdict.INCONCLUSIVE
    return Report(
        target=target,
        driver=None if driver is None else cuda.driver_text(driver),
        verdict=verdict,
        assurance=assurance,
        required_assurance=require,
        findings=findings,
        summary=_summary(findings, verdict, question, assurance, require),
    )


def _not_asked(check: Check) -> Finding:
    reason, evidence = "left out by --only or --skip", {"not_asked": True}
    return check.finding("(check)", Status.SKIP, reason, required=False, evidence=evidence)


def _ask(check: Check, question: Question) -> list[Finding]:
    """Run one check; its own failure and its silence are findings too."""
    try:
        found = list(check.run(question))
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
        message = f"the check itself failed: {type(error).__name__}: {error}"
        return [
            check.finding(
                "(check)",
                Status.ERROR,
                message,
                domain=Domain.ENVCHECK,
                remedy="report this with the inventory",
            )
        ]
    return found or [
        check.finding("(check)", Status.ERROR, "the check said nothing", domain=Domain.ENVCHECK)
    ]


def fold(findings: Sequence[Finding], checks: Iterable[Check] = CHECKS) -> Verdict:
    """Return the verdict: one required fail decides, and nothing looked at is no success.

    Which checks were not asked stands in the findings themselves.
    """
    deciding = [f for f in findings if f.required]
    statuses = {f.status for f in deciding}
    if Status.FAIL in statuses:
        return Verdict.INCOMPATIBLE
    answered = {f.check for f in deciding if f.status in _ANSWERS}
    if any(f.evidence.get("not_asked") for f in findings):
        # Of single checks, what decides nothing beside others is an answer.
        answered |= {f.check for f in findings if f.status in _ANSWERS}
    told = {f.check for f in findings if f.status in _ANSWERS}
    excused = {f.check for f in findings if _excused(f, told)}
    needed = {check.id for check in checks if check.required} - excused
    nothing = not answered or not needed <= answered
    if Status.ERROR in statuses or Status.SKIP in statuses or nothing:
        return Verdict.INCONCLUSIVE
    return Verdict.COMPATIBLE


def _excused(finding: Finding, told: set[str]) -> bool:
    """Say whether a check may have found nothing: not asked, or another judged what is there.

    `told` are the checks that looked at something: where all of those skipped what they were
    given, nobody judged it.
    """
    return bool(finding.evidence.get("not_asked")) or not told.isdisjoint(_judged_by(finding))


def _judged_by(finding: Finding) -> tuple[str, ...]:
    """Return the checks that are to judge what this one was given."""
    named = finding.evidence.get("judged_by", ())
    return tuple(map(str, named)) if isinstance(named, (tuple, list)) else ()


def reached(findings: Iterable[Finding], checks: Iterable[Check] = CHECKS) -> Assurance:
    """Return how far the evidence goes: every check of an assurance looked, and found no fault.

    What ran was compiled before, be it elsewhere: running does not rest on compiling here. Of
    what was to be run nothing may be left out.
    """
    statuses: dict[str, set[Status]] = {}
    partial = False
    for finding in findings:
        if finding.required:
            statuses.setdefault(finding.check, set()).add(finding.status)
        partial = partial or bool(finding.evidence.get("left_out"))
    levels = (Assurance.COMPILED,) if partial else (Assurance.EXECUTED, Assurance.COMPILED)
    for assurance in levels:
        needed = [statuses.get(c.id, set()) for c in checks if c.assurance is assurance]
        if needed and all(found and found <= {Status.PASS, Status.WARN} for found in needed):
            return assurance
    return Assurance.SCANNED


def _summary(
    findings: tuple[Finding, ...],
    verdict: Verdict,
    question: Question,
    assurance: Assurance,
    require: Assurance,
) -> dict[str, Json]:
    target = question.target
    counts: dict[str, Json] = {
        status.value: sum(f.status is status for f in findings) for status in Status
    }
    modes = [f.evidence.get("mode") for f in findings if f.check == CHECKS[0].id and f.required]
    files: dict[str, Json] = {mode: modes.count(mode) for mode in ("native", "jit", "none")}
    drivers = [
        str(f.evidence["least_driver"])
        for f in findings
        if f.check == "driver-supports-target" and f.evidence.get("least_driver")
    ]
    least = drivers[0] if drivers else None
    inventory = question.inventory
    given = frozenset(a.path for a in inventory.artefacts) | {a.path for a in inventory.adapters}
    return {
        **counts,
        "files": files,
        "least_driver": least,
        "line": _line(findings, verdict, target, assurance, require, files, least, given),
        "executed": _executed(question),
        "decision": _decision(question, findings),
    }


def _decision(question: Question, findings: tuple[Finding, ...]) -> Json:
    """Return whether to keep the machine, None where none was looked at."""
    if question.machine is None:
        return None
    decision = decide(findings)
    return {"word": decision.word, "facts": decision.facts}


def _executed(question: Question) -> Json:
    """Return what ran in numbers, None where nothing ran on such a card."""
    executed = question.executed
    if executed is None or executed.card is None:
        return None
    spent = dict.fromkeys(executed.parts, 0.0)
    counts = dict.fromkeys(executed.parts, 0)
    for run in executed.runs:
        if run.outcome.status != "not-applicable":
            spent[run.part] = spent.get(run.part, 0.0) + run.outcome.milliseconds / 1000
            counts[run.part] = counts.get(run.part, 0) + 1
    return {
        "card": executed.card.name,
        "seconds": executed.seconds,
        "budget": executed.budget,
        "runs": counts,
        "seconds_of_runs": {part: round(s, 3) for part, s in spent.items()},
        "spent": {name: round(seconds, 3) for name, seconds in executed.spent.items()},
        "left_out": sum(r.was_left_out for r in executed.runs),
    }


def _line(
    findings: tuple[Finding, ...],
    verdict: Verdict,
    target: Target,
    assurance: Assurance,
    require: Assurance,
    files: dict[str, Json],
    least: str | None,
    given: frozenset[str],
) -> str:
    """Write the verdict in one line, with its cause."""
    name = target.name if target.name == target.sm else f"{target.name} ({target.sm})"
    head = f"{verdict.value} with {name}"
    deciding = [f for f in findings if f.required]
    for wanted in (Status.FAIL, Status.ERROR):
        cause = next((f for f in deciding if f.status is wanted), None)
        if cause is not None:
            more = sum(f.status is wanted and f.check == cause.check for f in deciding) - 1
            tail = f" (and {more} more)" if more else ""
            return f"{head}: {cause.subject}: {cause.message}{tail}"
    left_out = sum(int(str(f.evidence.get("left_out", 0))) for f in findings)
    partly = f"; {left_out} runs were left out (--budget)" if left_out else ""
    if verdict is Verdict.INCONCLUSIVE and _ORDER.index(assurance) < _ORDER.index(require):
        reach = _reach(assurance, left_out)
        return f"{head}: {reach}{partly}; assurance {require.value} was asked for"
    if verdict is Verdict.INCONCLUSIVE:
        asked = [f for f in findings if not f.evidence.get("not_asked")]
        skipped = next((f for f in asked if f.subject in given), None)
        if skipped is not None:
            return f"{head}: {skipped.subject}: {skipped.message}"
        if CHECKS[0].id in {f.check for f in asked} or not asked:
            return f"{head}: no device code was found to judge"
        return f"{head}: {asked[0].subject}: {asked[0].message}"
    driver = f"; least driver {least}" if least else ""
    how = "" if assurance is Assurance.SCANNED else f"; {_reach(assurance, left_out)}"
    not_asked = {f.check for f in findings if f.evidence.get("not_asked")}
    without = f"; {len(not_asked)} check(s) not asked" if not_asked else ""
    counted = f"{files['native']} file(s) native, {files['jit']} JIT-only"
    told = {f.check for f in findings if f.status in _ANSWERS}
    if CHECKS[0].id in {f.check for f in findings if _excused(f, told)}:
        passed, warned = len(told), sum(f.status is Status.WARN for f in findings)
        counted = f"{passed} check(s) found no fault"
        if warned:
            counted = f"{passed} check(s), with {warned} warning(s)"
    return f"{head}: {counted}{how}{partly}{without}{driver}"


def _reach(assurance: Assurance, left_out: int) -> str:
    if assurance is Assurance.COMPILED and left_out:
        return "kernels compiled for it, not all run on a card"
    return _REACHED[assurance]
