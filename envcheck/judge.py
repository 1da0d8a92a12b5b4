"""Judge an inventory for a target: pure, so the same inventory gives the same report."""

from __future__ import annotations

from collections.abc import Iterable

from envcheck.checks import CHECKS, Check, Question
from envcheck.core import cuda
from envcheck.core.cuda import Version
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
_ORDER = (Assurance.SCANNED, Assurance.COMPILED, Assurance.EXECUTED)


def judge(
    target: Target,
    inventory: Inventory,
    driver: Version | None,
    checks: tuple[Check, ...] = CHECKS,
    *,
    require: Assurance = Assurance.SCANNED,
) -> Report:
    """Run every check and fold the findings into one verdict.

    With less assurance than `require` there is nothing wrong, but not enough that is known to
    be right: that is inconclusive.
    """
    question = Question(target=target, sm=Sm.parse(target.sm), driver=driver, inventory=inventory)
    findings = tuple(f for check in checks for f in _ask(check, question))
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
        summary=_summary(findings, verdict, target, assurance, require),
    )


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


def fold(findings: Iterable[Finding], checks: Iterable[Check] = CHECKS) -> Verdict:
    """Return the verdict: one required fail decides, and nothing looked at is no success."""
    deciding = [f for f in findings if f.required]
    statuses = {f.status for f in deciding}
    if Status.FAIL in statuses:
        return Verdict.INCOMPATIBLE
    answered = {f.check for f in deciding if f.status in (Status.PASS, Status.WARN)}
    needed = {check.id for check in checks if check.required}
    if Status.ERROR in statuses or Status.SKIP in statuses or not needed <= answered:
        return Verdict.INCONCLUSIVE
    return Verdict.COMPATIBLE


def reached(findings: Iterable[Finding], checks: Iterable[Check] = CHECKS) -> Assurance:
    """Return how far the evidence goes: every check of an assurance looked, and found no fault."""
    statuses: dict[str, set[Status]] = {}
    for finding in findings:
        if finding.required:
            statuses.setdefault(finding.check, set()).add(finding.status)
    needed = [statuses.get(c.id, set()) for c in checks if c.assurance is Assurance.COMPILED]
    faultless = all(found and found <= {Status.PASS, Status.WARN} for found in needed)
    return Assurance.COMPILED if needed and faultless else Assurance.SCANNED


def _summary(
    findings: tuple[Finding, ...],
    verdict: Verdict,
    target: Target,
    assurance: Assurance,
    require: Assurance,
) -> dict[str, Json]:
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
    return {
        **counts,
        "files": files,
        "least_driver": least,
        "line": _line(findings, verdict, target, assurance, require, files, least),
    }


def _line(
    findings: tuple[Finding, ...],
    verdict: Verdict,
    target: Target,
    assurance: Assurance,
    require: Assurance,
    files: dict[str, Json],
    least: str | None,
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
    if verdict is Verdict.INCONCLUSIVE and _ORDER.index(assurance) < _ORDER.index(require):
        return f"{head}: {_REACHED[assurance]}; assurance {require.value} was asked for"
    if verdict is Verdict.INCONCLUSIVE:
        return f"{head}: no device code was found to judge"
    driver = f"; least driver {least}" if least else ""
    how = "" if assurance is Assurance.SCANNED else f"; {_REACHED[assurance]}"
    return f"{head}: {files['native']} file(s) native, {files['jit']} JIT-only{how}{driver}"
