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
from pathlib import Path
from typing import Any

from envcheck.core import codec
from envcheck.core.model import Finding, Inventory, Report, Status, Verdict
from envcheck.errors import DocumentInvalid, SignatureInvalid

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
MANIFEST_SCHEMA = "envcheck/manifest/v1"


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
    finished: str


def attest(inventory: Inventory, report: Report, origin: Origin) -> bytes:
    """Return the Statement as JSON; raises DocumentInvalid without an environment to name."""
    if inventory.environment is None:
        message = "an inventory of files has no environment that a manifest could be about"
        raise DocumentInvalid(message)
    algorithm, _, digest = inventory.environment.digest.partition(":")
    target = codec.to_json(report.target)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": "environment", "digest": {algorithm: digest}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            **_standard(report),
            "configuration": [
                {"name": "targets.toml", "digest": {"sha256": origin.targets_digest}},
                {"name": "envcheck-gpu", "uri": f"pkg:pypi/envcheck-gpu@{origin.version}"},
                {
                    "name": "target",
                    "content": base64.b64encode(codec.dumps(target).encode()).decode(),
                    "mediaType": "application/json",
                    "annotations": target,
                },
            ],
            "envcheck": {
                "schema": MANIFEST_SCHEMA,
                "tool": {"name": "envcheck-gpu", "version": origin.version},
                "started": origin.started,
                "finished": origin.finished,
                "target": target,
                "inventoryDigest": {"sha256": inventory_digest(inventory)},
                "inventory": codec.to_json(inventory),
                "report": codec.to_json(report),
            },
        },
    }
    return json.dumps(statement, ensure_ascii=False, allow_nan=False).encode()


def _standard(report: Report) -> dict[str, Any]:
    """Return the fields that every reader of test results knows."""
    return {
        "result": _result(report),
        "passedTests": _names(report, Status.PASS),
        "warnedTests": _names(report, Status.WARN),
        "failedTests": _failed(report),
    }


def _result(report: Report) -> str:
    if report.verdict is not Verdict.COMPATIBLE:
        return "FAILED"
    return "WARNED" if _names(report, Status.WARN) else "PASSED"


def _names(report: Report, status: Status) -> list[str]:
    return [_name(f) for f in report.findings if f.status is status]


def _failed(report: Report) -> list[str]:
    failed = [
        _name(f) for f in report.findings if f.required and f.status in (Status.FAIL, Status.ERROR)
    ]
    if report.verdict is Verdict.INCONCLUSIVE and not failed:
        failed = ["verdict: inconclusive"]
    return failed


def _name(finding: Finding) -> str:
    return f"{finding.check}: {finding.subject}"


def inventory_digest(inventory: Inventory) -> str:
    """Return the SHA-256 of an inventory as `envcheck` saves it, hexadecimal."""
    return hashlib.sha256(codec.dumps(inventory).encode()).hexdigest()


def read_statement(payload: bytes) -> Manifest:
    """Read a verified payload; raises SignatureInvalid that names what does not fit.

    What was signed can still be another tool's statement, or of a schema that this version
    does not know.
    """
    try:
        statement = codec.parse(payload, name="manifest")
        validate(statement, "manifest-v1")
        member = statement["predicate"]["envcheck"]
        validate(member["report"], "report-v1")
        inventory = codec.from_json(Inventory, member["inventory"], "manifest.inventory")
        report = codec.from_json(Report, member["report"], "manifest.report")
    except DocumentInvalid as error:
        raise SignatureInvalid(error.message, remedy="use the envcheck that made it") from None
    subject = "sha256:" + statement["subject"][0]["digest"]["sha256"]
    if inventory_digest(inventory) != member["inventoryDigest"]["sha256"]:
        message = "manifest.inventoryDigest: it is not the digest of the inventory beside it"
        raise SignatureInvalid(message)
    if inventory.environment is None or inventory.environment.digest != subject:
        message = "manifest.subject: it is not the environment of the inventory"
        raise SignatureInvalid(message)
    for name, value in {**_standard(report), "target": codec.to_json(report.target)}.items():
        said = member["target"] if name == "target" else statement["predicate"][name]
        if said != value:
            message = f"manifest.{name}: it is not that of the report beside it"
            raise SignatureInvalid(message)
    return Manifest(
        subject=subject,
        inventory=inventory,
        report=report,
        version=member["tool"]["version"],
        finished=member["finished"],
    )


def validate(document: Any, schema: str) -> None:
    """Check a document against a schema that ships here; raises DocumentInvalid with its path."""
    import jsonschema

    path = Path(__file__).parent / "schema" / f"{schema}.json"
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
    error = next(iter(validator.iter_errors(document)), None)
    if error is not None:
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
        message = f"{schema.partition('-')[0]}{where}: {error.message[:200]}"
        raise DocumentInvalid(message)
