"""Whether what a manifest says lets a job start: by its own words and the clock, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from envcheck import meant
from envcheck.attest import Manifest
from envcheck.core.decision import BACK
from envcheck.core.model import Assurance, Finding, Report, Status, Target, Verdict
from envcheck.errors import JobRefused
from envcheck.policy import Policy

INCONCLUSIVE = Verdict.INCONCLUSIVE.exit_code
NEW_ONE = "envcheck check --arch native --sign KEY -o MANIFEST"
SKEW = 60.0
"""Seconds that the clocks of two machines may differ by."""
_LEVELS = list(Assurance)


def require(manifest: Manifest, policy: Policy, *, now: float, arrived: float) -> None:
    """Raise JobRefused unless the manifest is fresh and says what the policy asks for.

    `now` and `arrived`, when the manifest's file was last written to, are seconds since 1970.
    """
    _require_fresh(manifest, policy.max_age, now, arrived)
    report = manifest.report
    if report.verdict is not Verdict.COMPATIBLE:
        message = f"the manifest's verdict is {report.summary['line']}"
        raise JobRefused(message, code=report.verdict.exit_code)
    _require_not_given_back(report)
    if _LEVELS.index(report.assurance) < _LEVELS.index(policy.require):
        message = (
            f"the manifest's assurance is {report.assurance.value}, not {policy.require.value}"
        )
        remedy = {
            Assurance.EXECUTED: NEW_ONE,
            Assurance.COMPILED: "envcheck build --arch NAME --sign KEY -o MANIFEST",
        }.get(policy.require, "")
        raise JobRefused(message, remedy=remedy, code=INCONCLUSIVE)
    if policy.target is not None:
        _require_target(report.target, policy.target)
    _require_checks(report, policy)


def seconds(time: str) -> float:
    """Return the seconds since 1970 of a manifest's time; raises JobRefused for none."""
    try:
        # Python 3.10 knows no Z.
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except ValueError:
        message = f"the manifest's time {time[:40]!r} is none"
        raise JobRefused(message, remedy=NEW_ONE) from None


def _require_fresh(manifest: Manifest, max_age: float | None, now: float, arrived: float) -> None:
    made = seconds(manifest.finished)
    clock = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if made > now + SKEW or seconds(manifest.started) > made:
        message = f"the manifest is from {manifest.finished}, and the clock here says {clock}"
        raise JobRefused(message, remedy="timedatectl set-ntp true")
    # The kernel keeps this time, so a clock that was set back stands before it.
    if arrived > now + SKEW:
        message = (
            f"the clock here says {clock}, before the manifest's file came here: it was set back"
        )
        raise JobRefused(message, remedy="timedatectl set-ntp true")
    if max_age is not None and now - made > max_age:
        message = f"the manifest is {_words(now - made)} old, more than {_words(max_age)}"
        raise JobRefused(message, remedy=NEW_ONE)


def _words(span: float) -> str:
    """Return a span of time as one would say it: `36 h`."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if span >= 2 * unit:
            return f"{span / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{span:.0f} s"


def _require_not_given_back(report: Report) -> None:
    """Refuse a machine that a preflight gave back, whatever the rules of its verdict were."""
    decision = report.summary.get("decision")
    if isinstance(decision, Mapping) and decision.get("word") == BACK:
        message = f"the manifest's decision is {BACK}, though its verdict is {report.verdict.value}"
        raise JobRefused(message, remedy="envcheck preflight on another machine", code=INCONCLUSIVE)


def _require_target(there: Target, wanted: Target) -> None:
    """Raise JobRefused for another SM, and for another product where both are products."""
    product = there.limits.card if there.limits is not None else there.card
    if there.sm == wanted.sm and (wanted.limits is None or product in (None, wanted.limits.card)):
        return
    name = there.name if there.sm != wanted.sm else product
    message = f"the manifest is about {name} ({there.sm}), not {wanted.name} ({wanted.sm})"
    raise JobRefused(message, remedy="the manifest of that target")


def _require_checks(report: Report, policy: Policy) -> None:
    asked = {finding.check for finding in report.findings}
    for check in policy.checks:
        if check not in asked:
            near = meant.question(check, sorted(asked))
            message = f"the manifest says nothing of the required check {check!r}{near}"
            raise JobRefused(message, remedy="envcheck explain lists all checks", code=INCONCLUSIVE)
    for finding in report.findings:
        bad = finding.status not in (Status.PASS, Status.WARN)
        if finding.check in policy.checks and bad:
            _refuse(finding, f"the required check {finding.check} is {finding.status.value}")
        allowed = policy.warns is None or finding.check in policy.warns
        if finding.status is Status.WARN and not allowed:
            _refuse(finding, f"{finding.check} warns, which `warns` does not allow")


def _refuse(finding: Finding, why: str) -> None:
    message = f"{why}: {finding.subject}: {finding.message}"
    raise JobRefused(message, remedy=finding.remedy, code=INCONCLUSIVE)
