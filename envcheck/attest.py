"""Turn an inventory and its report into an in-toto Statement, and read one back.

The predicate is in-toto's test-result v0.1 with its standard fields filled in, and
envcheck's own member beside them. Inconclusive is FAILED there: a reader that knows only
the standard fields must not take it for a success.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass

from envcheck.core import codec
from envcheck.core.model import Environment, Finding, Inventory, Report, Status, Verdict
from envcheck.errors import DocumentInvalid, SignatureInvalid
from envcheck.statement import (
    MANIFEST_SCHEMA,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    TOOL,
    Digest,
    Member,
    Predicate,
    Statement,
    Subject,
    Tool,
    require_known,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which envcheck made a manifest, with which data, and when."""

    version: str
    targets_digest: str
    """SHA-256 of targets.toml, hexadecimal."""
    started: str
    """RFC 3339, UTC."""
    finished: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A statement that was checked against its schema and its own digests."""

    subject: str
    """`sha256:...` of the environment."""
    inventory: Inventory
    report: Report
    version: str
    started: str
    finished: str


def attest(inventory: Inventory, report: Report, origin: Origin) -> bytes:
    """Return the Statement as JSON; raises DocumentInvalid without an environment to name."""
    if inventory.environment is None:
        message = "an inventory of files has no environment that a manifest could be about"
        raise DocumentInvalid(message)
    target = codec.dumps(report.target)
    statement = Statement(
        _type=STATEMENT_TYPE,
        subject=_subjects(inventory.environment),
        predicateType=PREDICATE_TYPE,
        predicate=Predicate(
            result=_result(report),
            configuration=(
                {"name": "targets.toml", "digest": {"sha256": origin.targets_digest}},
                {"name": TOOL, "uri": f"pkg:pypi/{TOOL}@{origin.version}"},
                {
                    "name": "target",
                    "content": base64.b64encode(target.encode()).decode(),
                    "mediaType": "application/json",
                    "annotations": {"name": report.target.name, "sm": report.target.sm},
                },
            ),
            passedTests=_names(report, Status.PASS),
            warnedTests=_names(report, Status.WARN),
            failedTests=_failed(report),
            envcheck=Member(
                schema=MANIFEST_SCHEMA,
                tool=Tool(name=TOOL, version=origin.version),
                started=origin.started,
                finished=origin.finished,
                target=report.target,
                inventoryDigest=Digest(sha256=inventory_digest(inventory)),
                inventory=inventory,
                report=report,
            ),
        ),
    )
    return json.dumps(codec.to_json(statement), ensure_ascii=False, allow_nan=False).encode()


def _subjects(environment: Environment) -> tuple[Subject, ...]:
    """Name the environment by its digest, and the image that it is in by its id."""
    found = [("environment", environment.digest)]
    if environment.image is not None:
        found.append((environment.image.reference, environment.image.id))
    if environment.content is not None:
        found.append(("content", environment.content))
    return tuple(
        Subject(name=name, digest=Digest(sha256=digest.removeprefix("sha256:")))
        for name, digest in found
    )


def _result(report: Report) -> str:
    if report.verdict is not Verdict.COMPATIBLE:
        return "FAILED"
    return "WARNED" if _names(report, Status.WARN) else "PASSED"


def _names(report: Report, status: Status) -> tuple[str, ...]:
    return tuple(_name(f) for f in report.findings if f.status is status)


def _failed(report: Report) -> tuple[str, ...]:
    bad = (Status.FAIL, Status.ERROR)
    failed = tuple(_name(f) for f in report.findings if f.required and f.status in bad)
    inconclusive = report.verdict is Verdict.INCONCLUSIVE and not failed
    return ("verdict: inconclusive",) if inconclusive else failed


def _name(finding: Finding) -> str:
    return f"{finding.check}: {finding.subject}"


def inventory_digest(inventory: object) -> str:
    """Return the SHA-256 of an inventory as `envcheck` saves it, hexadecimal."""
    return hashlib.sha256(codec.dumps(inventory).encode()).hexdigest()


def _require_test_result(document: object) -> None:
    """Tell another tool's statement by its type, before its predicate is found to lack ours."""
    kind = document.get("predicateType") if isinstance(document, dict) else None
    if isinstance(kind, str) and kind != PREDICATE_TYPE:
        message = f"manifest.predicateType: {kind[:80]!r} is not {PREDICATE_TYPE!r}"
        raise SignatureInvalid(message, remedy="give it a manifest that envcheck signed")


def _verdicts(report: Report) -> tuple[Verdict, ...]:
    """Return the verdicts that the findings allow.

    `judge.fold` decides; it is not called, since importing all checks takes longer than the
    rest of `verify`. What only it knows is whether a check that is needed said nothing: then
    findings without a fault are inconclusive all the same.
    """
    statuses = {f.status for f in report.findings if f.required}
    if Status.FAIL in statuses:
        return (Verdict.INCOMPATIBLE,)
    if statuses & {Status.ERROR, Status.SKIP} or not statuses:
        return (Verdict.INCONCLUSIVE,)
    return (Verdict.COMPATIBLE, Verdict.INCONCLUSIVE)


def _is_count(value: object, status: Status, report: Report) -> bool:
    return type(value) is int and value == sum(f.status is status for f in report.findings)


def read_statement(payload: bytes) -> Manifest:
    """Read a verified payload; raises SignatureInvalid that names what does not fit.

    What was signed can still be another tool's statement, of a schema that this version does
    not know, or one whose parts contradict each other.
    """
    try:
        document = codec.parse(payload, name="manifest")
        _require_test_result(document)
        statement = codec.from_json(Statement, document, "manifest")
        require_known(statement)
    except DocumentInvalid as error:
        raise SignatureInvalid(error.message, remedy="use the envcheck that made it") from None
    predicate, member = statement.predicate, statement.predicate.envcheck
    # The digest is of the bytes that were signed: a field that this version does not write
    # any more, or writes in addition, must not change it.
    signed = document["predicate"]["envcheck"]["inventory"]
    report, environment = member.report, member.inventory.environment
    for name, agrees, what in (
        (
            "predicate.envcheck.inventoryDigest",
            inventory_digest(signed) == member.inventoryDigest.sha256,
            "the digest of the inventory beside it",
        ),
        (
            "subject",
            environment is not None and statement.subject == _subjects(environment),
            "the environment of the inventory",
        ),
        ("predicate.envcheck.target", member.target == report.target, "that of the report"),
        (
            "predicate.envcheck.report.verdict",
            report.verdict in _verdicts(report),
            "what the findings beside it give",
        ),
        *(
            (
                f"predicate.envcheck.report.summary.{status.value}",
                _is_count(report.summary.get(status.value), status, report),
                "the number of such findings",
            )
            for status in Status
        ),
        (
            "predicate.envcheck.report.summary.line",
            str(report.summary.get("line")).startswith(
                f"{report.verdict.value} with {report.target.name}"
            ),
            "about the verdict and the target beside it",
        ),
        ("predicate.result", predicate.result == _result(report), "that of the report"),
        (
            "predicate.passedTests",
            predicate.passedTests == _names(report, Status.PASS),
            "that of the report",
        ),
        (
            "predicate.warnedTests",
            predicate.warnedTests == _names(report, Status.WARN),
            "that of the report",
        ),
        ("predicate.failedTests", predicate.failedTests == _failed(report), "that of the report"),
    ):
        if not agrees:
            message = f"manifest.{name}: it is not {what}"
            raise SignatureInvalid(message, remedy="do not rely on it; ask whoever signed it")
    return Manifest(
        subject=f"sha256:{statement.subject[0].digest.sha256}",
        inventory=member.inventory,
        report=report,
        version=member.tool.version,
        started=member.started,
        finished=member.finished,
    )
