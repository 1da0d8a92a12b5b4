"""The statement: in-toto's fields as their specification has them, and ours beside them.

Statement v1: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
Test result v0.1: https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md
Resource descriptor: https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import envcheck
from envcheck import attest
from envcheck.core import codec
from envcheck.core.distribution import Distribution
from envcheck.core.model import (
    Assurance,
    Domain,
    Environment,
    Finding,
    Image,
    Inventory,
    Report,
    Status,
    Target,
    Verdict,
)
from envcheck.errors import DocumentInvalid, SignatureInvalid

DIGEST = "12" * 32
INVENTORY = Inventory(
    source="environment",
    environment=Environment(
        python="3.11.7",
        implementation="cpython",
        platform="linux-x86_64",
        libc="glibc 2.36",
        digest=f"sha256:{DIGEST}",
        distributions=(Distribution(name="torch", version="2.14.1", record_digest="ab" * 32),),
    ),
)
# The limit is the one of the CUDA C++ Programming Guide for compute capability 12.x: 99 KiB.
TARGET = {
    "name": "rtx-5090",
    "sm": "sm_120",
    "shared_memory_per_block": 101376,
    "card": None,
    "limits": None,
}
ORIGIN = attest.Origin(
    version="1.2.3",
    targets_digest="cd" * 32,
    started="2026-11-30T10:00:00Z",
    finished="2026-11-30T10:00:05Z",
)


def finding(subject: str, status: str, *, required: bool = True) -> Finding:
    return Finding(
        check="a-claim",
        subject=subject,
        status=Status(status),
        message="because",
        domain=Domain.PACKAGE,
        evidence={"mode": "native"},
        required=required,
    )


def report(verdict: str, *findings: Finding) -> Report:
    findings = findings or (finding("x", "pass"),)
    counts = dict.fromkeys(["pass", "warn", "fail", "skip", "error"], 0)
    for each in findings:
        counts[each.status.value] += 1
    return Report(
        target=Target(name="rtx-5090", sm="sm_120", shared_memory_per_block=101376),
        driver="580.65.06",
        verdict=Verdict(verdict),
        assurance=Assurance.SCANNED,
        findings=findings,
        summary={
            **counts,
            "files": {"native": 0, "jit": 0, "none": 0},
            "least_driver": None,
            "line": f"{verdict} with rtx-5090",
        },
    )


def statement(value: Report) -> dict[str, Any]:
    return json.loads(attest.attest(INVENTORY, value, ORIGIN))


def test_the_statement_is_of_version_1_about_the_digest_of_the_environment() -> None:
    made = statement(report("compatible"))
    assert set(made) == {"_type", "subject", "predicateType", "predicate"}
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert made["subject"] == [{"name": "environment", "digest": {"sha256": DIGEST}}]


def test_every_configuration_is_a_resource_descriptor() -> None:
    configuration = statement(report("compatible"))["predicate"]["configuration"]
    fields = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}
    for each in configuration:
        assert set(each) <= fields
        # "At least one of `uri`, `digest` or `content`" identifies the resource.
        assert {"uri", "digest", "content"} & set(each)
    by_name = {each["name"]: each for each in configuration}
    assert by_name["targets.toml"]["digest"] == {"sha256": "cd" * 32}
    assert by_name["envcheck-gpu"]["uri"] == "pkg:pypi/envcheck-gpu@1.2.3"
    target = json.loads(base64.b64decode(by_name["target"]["content"], validate=True))
    assert target == TARGET


@pytest.mark.parametrize(
    ("verdict", "statuses", "result", "lists"),
    [
        ("compatible", ["pass", "skip"], "PASSED", (["p0"], [], [])),
        ("compatible", ["pass", "warn"], "WARNED", (["p0"], ["p1"], [])),
        ("incompatible", ["fail", "pass", "warn"], "FAILED", (["p1"], ["p2"], ["p0"])),
        ("inconclusive", ["error", "pass"], "FAILED", (["p1"], [], ["p0"])),
    ],
)
def test_the_result_and_the_lists_are_those_of_the_report(
    verdict: str, statuses: list[str], result: str, lists: tuple[list[str], ...]
) -> None:
    findings = (finding(f"p{n}", status) for n, status in enumerate(statuses))
    predicate = statement(report(verdict, *findings))["predicate"]
    assert predicate["result"] == result
    names = tuple([f"a-claim: {subject}" for subject in one] for one in lists)
    assert tuple(predicate[f"{k}Tests"] for k in ("passed", "warned", "failed")) == names


def test_nothing_looked_at_is_failed_with_its_reason() -> None:
    predicate = statement(report("inconclusive", finding("x", "skip")))["predicate"]
    assert predicate["result"] == "FAILED"
    assert predicate["failedTests"] == ["verdict: inconclusive"]


def test_what_does_not_decide_is_not_among_the_failed() -> None:
    value = report("compatible", finding("p", "pass"), finding("aside", "fail", required=False))
    predicate = statement(value)["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["failedTests"] == []


def test_our_member_holds_report_inventory_digest_target_tool_and_times() -> None:
    value = report("compatible")
    ours = statement(value)["predicate"]["envcheck"]
    assert ours["schema"] == "envcheck/manifest/v1"
    assert ours["tool"] == {"name": "envcheck-gpu", "version": "1.2.3"}
    assert (ours["started"], ours["finished"]) == (ORIGIN.started, ORIGIN.finished)
    assert ours["target"] == TARGET
    assert ours["report"] == json.loads(codec.dumps(value))
    assert ours["inventory"] == json.loads(codec.dumps(INVENTORY))
    saved = codec.dumps(INVENTORY).encode()
    assert ours["inventoryDigest"] == {"sha256": hashlib.sha256(saved).hexdigest()}


def test_the_same_facts_give_the_same_bytes() -> None:
    value = report("compatible")
    assert attest.attest(INVENTORY, value, ORIGIN) == attest.attest(INVENTORY, value, ORIGIN)


def test_files_alone_have_no_environment_to_attest() -> None:
    with pytest.raises(DocumentInvalid, match="no environment"):
        attest.attest(Inventory(source="files"), report("compatible"), ORIGIN)


def test_what_was_attested_is_read_back() -> None:
    value = report("incompatible", finding("x", "fail"))
    manifest = attest.read_statement(attest.attest(INVENTORY, value, ORIGIN))
    assert manifest.subject == f"sha256:{DIGEST}"
    assert manifest.report == value
    assert manifest.inventory == INVENTORY
    assert (manifest.version, manifest.finished) == ("1.2.3", ORIGIN.finished)


def test_a_built_image_has_three_names_and_is_read_back() -> None:
    image = Image(reference="envcheck-ada:latest", id="sha256:" + "34" * 32, labels={})
    environment = replace(INVENTORY.environment, image=image, content="sha256:" + "56" * 32)
    inventory = replace(INVENTORY, environment=environment)
    document = attest.attest(inventory, report("compatible", finding("x", "pass")), ORIGIN)
    assert {s["name"]: s["digest"]["sha256"] for s in json.loads(document)["subject"]} == {
        "environment": DIGEST,
        "envcheck-ada:latest": "34" * 32,
        "content": "56" * 32,
    }
    assert attest.read_statement(document).inventory == inventory


WHOLE = statement(report("compatible", finding("p", "pass"), finding("w", "warn")))
MEMBERS = [
    *((name,) for name in WHOLE),
    *(("predicate", name) for name in WHOLE["predicate"]),
    *(("predicate", "envcheck", name) for name in WHOLE["predicate"]["envcheck"]),
]


def shipped(name: str) -> jsonschema.Draft202012Validator:
    path = Path(envcheck.__file__).parent / "schema" / f"{name}.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))


def test_what_is_attested_fits_the_shipped_schemas() -> None:
    shipped("manifest-v1").validate(WHOLE)
    shipped("report-v1").validate(WHOLE["predicate"]["envcheck"]["report"])


@pytest.mark.parametrize("path", MEMBERS, ids=".".join)
def test_a_manifest_without_one_of_its_members_is_refused(path: tuple[str, ...]) -> None:
    document = json.loads(json.dumps(WHOLE))
    place = document
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    assert not shipped("manifest-v1").is_valid(document)
    with pytest.raises(SignatureInvalid, match=path[-1]):
        attest.read_statement(json.dumps(document).encode())


@pytest.mark.parametrize("path", MEMBERS, ids=".".join)
def test_a_manifest_with_a_member_of_another_type_is_refused(path: tuple[str, ...]) -> None:
    document = json.loads(json.dumps(WHOLE))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = 7
    assert not shipped("manifest-v1").is_valid(document)
    with pytest.raises(SignatureInvalid, match=path[-1]):
        attest.read_statement(json.dumps(document).encode())


OURS = ("predicate", "envcheck")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("_type",), "https://in-toto.io/Statement/v0.1"),
        (("predicateType",), "https://in-toto.io/attestation/test-result/v0.2"),
        (("subject",), []),
        (("subject", 0, "digest", "sha256"), DIGEST.upper() + "AB"),
        (("subject", 0, "digest", "sha256"), "12" * 31),
        (("predicate", "result"), "GREAT"),
        (("predicate", "configuration"), []),
        (("predicate", "passedTests", 0), 3),
        ((*OURS, "schema"), "envcheck/manifest/v2"),
        ((*OURS, "tool", "name"), "another"),
        ((*OURS, "started"), "yesterday"),
        ((*OURS, "finished"), "2026-11-30 10:00:05"),
        ((*OURS, "target", "sm"), "sm_120a"),
        ((*OURS, "inventoryDigest", "sha256"), "no"),
        ((*OURS, "inventory", "schema"), "envcheck/inventory/v0"),
        ((*OURS, "report", "schema"), "envcheck/report/v10"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_the_schema_and_the_reader_refuse_the_same_values(
    path: tuple[Any, ...], value: Any
) -> None:
    document = json.loads(json.dumps(WHOLE))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not shipped("manifest-v1").is_valid(document)
    with pytest.raises(SignatureInvalid) as caught:
        attest.read_statement(json.dumps(document).encode())
    assert str([key for key in path if isinstance(key, str)][-1]) in caught.value.message
    assert caught.value.remedy


def test_a_member_that_nobody_knows_is_refused() -> None:
    for path in ((), ("predicate",), OURS, (*OURS, "tool"), (*OURS, "report")):
        document = json.loads(json.dumps(WHOLE))
        place = document
        for key in path:
            place = place[key]
        place["surprise"] = 1
        with pytest.raises(SignatureInvalid, match="surprise"):
            attest.read_statement(json.dumps(document).encode())


def test_errors_name_the_member() -> None:
    document = json.loads(json.dumps(WHOLE))
    document["predicate"]["envcheck"]["report"]["findings"][1]["status"] = "great"
    with pytest.raises(SignatureInvalid, match=r"report\.findings\[1\]\.status"):
        attest.read_statement(json.dumps(document).encode())


def refused(document: dict[str, Any]) -> str:
    with pytest.raises(SignatureInvalid) as caught:
        attest.read_statement(json.dumps(document).encode())
    assert caught.value.exit_code == 12
    assert caught.value.remedy
    return caught.value.message.partition(": ")[0]


# What the README's exit codes say, spelled out: (verdict, the findings' statuses).
HONEST = [
    ("compatible", ["pass"]),
    ("compatible", ["warn"]),
    ("compatible", ["pass", "fail?", "skip?", "error?"]),
    ("incompatible", ["pass", "fail"]),
    ("incompatible", ["fail", "error", "skip"]),
    ("inconclusive", ["pass", "error"]),
    ("inconclusive", ["pass", "skip"]),
    ("inconclusive", ["skip?"]),
    ("inconclusive", ["pass"]),  # a check that is needed said nothing
]
CONTRADICTIONS = [
    ("compatible", ["pass", "fail"]),
    ("compatible", ["pass", "error"]),
    ("compatible", ["pass", "skip"]),
    ("compatible", ["skip?"]),
    ("compatible", ["pass?"]),
    ("incompatible", ["pass"]),
    ("incompatible", ["pass", "error"]),
    ("incompatible", ["pass", "fail?"]),
    ("inconclusive", ["fail", "error"]),
]


def of_statuses(verdict: str, statuses: list[str]) -> dict[str, Any]:
    """Return a statement all of whose lists agree; `?` marks what does not decide."""
    found = (finding(s, s.rstrip("?"), required=not s.endswith("?")) for s in statuses)
    return statement(report(verdict, *found))


@pytest.mark.parametrize(("verdict", "statuses"), HONEST)
def test_a_verdict_that_follows_from_the_findings_is_read(
    verdict: str, statuses: list[str]
) -> None:
    document = of_statuses(verdict, statuses)
    read = attest.read_statement(json.dumps(document).encode())
    assert read.report.verdict.value == verdict


@pytest.mark.parametrize(("verdict", "statuses"), CONTRADICTIONS)
def test_a_verdict_that_contradicts_the_findings_is_refused(
    verdict: str, statuses: list[str]
) -> None:
    assert refused(of_statuses(verdict, statuses)) == "manifest.predicate.envcheck.report.verdict"


def test_a_success_over_a_failed_finding_is_refused_whatever_else_was_changed() -> None:
    document = of_statuses("incompatible", ["pass", "fail"])
    predicate = document["predicate"]
    predicate.update(result="PASSED", failedTests=[])
    value = predicate["envcheck"]["report"]
    value["verdict"] = "compatible"
    value["summary"].update(fail=0, line="compatible with rtx-5090")
    assert refused(document) == "manifest.predicate.envcheck.report.verdict"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pass", 2),
        ("pass", True),
        ("pass", "1"),
        ("warn", 0),
        ("fail", 1),
        ("skip", 1),
        ("error", None),
        ("line", "incompatible with rtx-5090"),
        ("line", "compatible with ada"),
        ("line", "compatible"),
        ("line", 7),
    ],
)
def test_a_summary_that_contradicts_the_findings_is_refused(name: str, value: object) -> None:
    document = json.loads(json.dumps(WHOLE))
    document["predicate"]["envcheck"]["report"]["summary"][name] = value
    assert refused(document) == f"manifest.predicate.envcheck.report.summary.{name}"


@pytest.mark.parametrize("name", ["pass", "line"])
def test_a_summary_without_what_it_must_say_is_refused(name: str) -> None:
    document = json.loads(json.dumps(WHOLE))
    del document["predicate"]["envcheck"]["report"]["summary"][name]
    assert refused(document) == f"manifest.predicate.envcheck.report.summary.{name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("result", "PASSED"),
        ("result", "FAILED"),
        ("passedTests", []),
        ("warnedTests", []),
        ("failedTests", ["a-claim: w"]),
    ],
)
def test_a_predicate_that_the_report_does_not_give_is_refused(name: str, value: object) -> None:
    document = json.loads(json.dumps(WHOLE))
    document["predicate"][name] = value
    assert refused(document) == f"manifest.predicate.{name}"


def test_the_statement_of_another_tool_is_told_by_its_type() -> None:
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "x", "digest": {"sha512": "00"}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": {}},
    }
    with pytest.raises(SignatureInvalid) as caught:
        attest.read_statement(json.dumps(document).encode())
    assert caught.value.message == (
        "manifest.predicateType: 'https://slsa.dev/provenance/v1' is not "
        "'https://in-toto.io/attestation/test-result/v0.1'"
    )
