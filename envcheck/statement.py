"""The manifest's Statement as values; `schema/manifest-v1.json` says the same for others.

The names are those of the documents: in-toto writes camelCase. The codec reads these
strictly, which takes a tenth of the time that a JSON Schema library needs to be imported;
tests hold both against each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from envcheck.core.model import INVENTORY_SCHEMA, REPORT_SCHEMA, Inventory, Json, Report, Target
from envcheck.errors import DocumentInvalid

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
MANIFEST_SCHEMA = "envcheck/manifest/v1"
TOOL = "envcheck-gpu"
_SHA256 = "[0-9a-f]{64}"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_SM = "sm_[0-9]{2,3}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A digest of the one algorithm that is used."""

    sha256: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What the statement is about."""

    name: str
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What made the statement."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What envcheck puts beside the standard fields."""

    schema: str
    tool: Tool
    started: str
    finished: str
    target: Target
    inventoryDigest: Digest  # noqa: N815
    inventory: Inventory
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """in-toto's test result v0.1, and our member."""

    result: str
    configuration: tuple[Mapping[str, Json], ...]
    passedTests: tuple[str, ...]  # noqa: N815
    warnedTests: tuple[str, ...]  # noqa: N815
    failedTests: tuple[str, ...]  # noqa: N815
    envcheck: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """in-toto's Statement v1."""

    _type: str
    subject: tuple[Subject, ...]
    predicateType: str  # noqa: N815
    predicate: Predicate


def require_known(statement: Statement) -> None:
    """Check what types do not say; raises DocumentInvalid that names the field."""
    predicate, member = statement.predicate, statement.predicate.envcheck
    if len(statement.subject) not in (1, 2, 3):
        message = f"manifest.subject: {len(statement.subject)} of them, not one to three"
        raise DocumentInvalid(message)
    if not predicate.configuration or not member.report.findings:
        message = "manifest.predicate: without configuration or findings"
        raise DocumentInvalid(message)
    for path, value, pattern in (
        ("_type", statement._type, re.escape(STATEMENT_TYPE)),  # noqa: SLF001 - its JSON name
        ("predicateType", statement.predicateType, re.escape(PREDICATE_TYPE)),
        ("subject[0].digest.sha256", statement.subject[0].digest.sha256, _SHA256),
        ("predicate.result", predicate.result, "PASSED|WARNED|FAILED"),
        ("predicate.envcheck.schema", member.schema, re.escape(MANIFEST_SCHEMA)),
        ("predicate.envcheck.tool.name", member.tool.name, re.escape(TOOL)),
        ("predicate.envcheck.started", member.started, _TIME),
        ("predicate.envcheck.finished", member.finished, _TIME),
        ("predicate.envcheck.target.sm", member.target.sm, _SM),
        ("predicate.envcheck.inventoryDigest.sha256", member.inventoryDigest.sha256, _SHA256),
        ("predicate.envcheck.inventory.schema", member.inventory.schema, INVENTORY_SCHEMA),
        ("predicate.envcheck.report.schema", member.report.schema, REPORT_SCHEMA),
    ):
        if re.fullmatch(pattern, value) is None:
            message = f"manifest.{path}: {value[:80]!r} is not what this version reads"
            raise DocumentInvalid(message)
