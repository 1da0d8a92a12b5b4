"""`envcheck compare` as its users run it: real manifests, and what is none."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from guarding import Signed, sign_environment
from running import envcheck

import envcheck as package
from envcheck.core.compared import COMPARISON_SCHEMA
from envcheck.core.model import Inventory, Report, Status, Verdict

SCHEMA = json.loads((Path(package.__file__).parent / "schema/comparison-v1.json").read_bytes())


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return sign_environment(tmp_path_factory.mktemp("compare"))


@pytest.fixture(scope="module")
def failing(signed: Signed) -> Path:
    """A manifest of the same environment, with numpy come, in which the first pass fails."""

    def fail(inventory: Inventory, report: Report) -> tuple[Inventory, Report]:
        at = next(n for n, f in enumerate(report.findings) if f.status is Status.PASS)
        broken = replace(report.findings[at], status=Status.FAIL, message="planted | fault",
                         required=True)  # fmt: skip
        findings = (*report.findings[:at], broken, *report.findings[at + 1 :])
        counts = {s.value: sum(f.status is s for f in findings) for s in Status}
        line = report.summary["line"]
        assert isinstance(line, str)
        summary = {
            **report.summary,
            **counts,
            "line": line.replace("compatible", "incompatible", 1),
        }
        return inventory, replace(
            report, findings=findings, verdict=Verdict.INCOMPATIBLE, summary=summary
        )

    return signed.changed("failing.json", fail)


def document(*arguments: Any, code: int) -> dict[str, Any]:
    done = envcheck("compare", *arguments, "--format", "json")
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["schema"] == COMPARISON_SCHEMA
    return found


def test_the_same_manifest_twice(signed: Signed) -> None:
    done = envcheck("compare", signed.manifest, signed.manifest, "--key", signed.public)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("; nothing differs")
    assert done.stderr == ""
    found = document(signed.manifest, signed.manifest, "--key", signed.public, code=0)
    (other,) = found["others"]
    assert other["compared"] > 0
    assert (other["distributions"], other["facts"], other["lost"]) == ([], [], [])
    assert (found["first"]["verified"], other["other"]["verified"]) == (True, True)


def test_what_fails_now_decides_and_is_named_last(signed: Signed, failing: Path) -> None:
    done = envcheck("compare", signed.manifest, failing, "--key", signed.public)
    assert done.returncode == 10
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"{failing}: fails what passed before: ")
    assert last.endswith("planted | fault")
    assert envcheck("compare", failing, signed.manifest, "--key", signed.public).returncode == 0
    (other,) = document(signed.manifest, failing, "--key", signed.public, code=10)["others"]
    assert len(other["lost"]) == 1
    quiet = envcheck("compare", signed.manifest, failing, "--key", signed.public, "-q")
    assert quiet.stdout.splitlines() == [last]


def test_of_several_the_first_is_what_the_others_are_compared_with(
    signed: Signed, failing: Path
) -> None:
    found = document(signed.manifest, signed.manifest, failing, code=10)
    assert [len(each["lost"]) for each in found["others"]] == [0, 1]


def test_markdown_has_a_row_for_it_and_nothing_breaks_out_of_a_cell(
    signed: Signed, failing: Path
) -> None:
    done = envcheck("compare", signed.manifest, failing, "--format", "markdown")
    assert done.returncode == 10
    assert "| check | subject | before | after | why |" in done.stdout
    rows = [line for line in done.stdout.splitlines() if "planted" in line and line[0] == "|"]
    assert rows
    assert all(r"planted \| fault" in row for row in rows)


def test_without_a_key_it_says_that_nothing_was_verified_and_goes_on(signed: Signed) -> None:
    done = envcheck("compare", signed.manifest, signed.manifest)
    assert done.returncode == 0
    assert done.stderr == "envcheck: nothing was verified: no signature was checked\n"
    assert "not verified" in done.stdout


def test_a_key_does_not_vouch_for_what_is_not_signed(signed: Signed, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    done = envcheck("verify", signed.manifest, "--key", signed.public, "--save-inventory", facts)
    assert done.returncode == 0
    done = envcheck("compare", signed.manifest, facts, "--key", signed.public)
    assert f"nothing of {facts} was verified" in done.stderr
    # Facts alone do not say what passed.
    assert done.returncode == 11
    assert f"checks: {facts} holds no report" in done.stdout


def test_a_changed_payload_is_refused_with_a_key(signed: Signed, tmp_path: Path) -> None:
    envelope = json.loads(signed.manifest.read_bytes())
    payload = base64.b64decode(envelope["payload"]).replace(b"gpu-package", b"gpu-packagf")
    envelope["payload"] = base64.b64encode(payload).decode()
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(envelope))
    done = envcheck("compare", signed.manifest, forged, "--key", signed.public)
    assert (done.returncode, done.stdout) == (12, "")
    assert "does not verify" in done.stderr


def test_reports_compare_without_facts(signed: Signed, failing: Path, tmp_path: Path) -> None:
    paths = []
    for path in (signed.manifest, failing):
        paths.append(tmp_path / f"report-of-{path.name}")
        member = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
        paths[-1].write_text(json.dumps(member["predicate"]["envcheck"]["report"]))
    (other,) = document(*paths, code=10)["others"]
    assert other["left"] == ["environment: in neither"]


def turned(value: Any) -> Any:
    """Return a JSON value with the members of every object in the other order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


def test_the_order_of_keys_does_not_matter(signed: Signed, tmp_path: Path) -> None:
    member = json.loads(base64.b64decode(json.loads(signed.manifest.read_bytes())["payload"]))
    for name in ("inventory", "report"):
        whole = member["predicate"]["envcheck"][name]
        one, other = tmp_path / f"{name}-1.json", tmp_path / f"{name}-2.json"
        one.write_text(json.dumps(whole))
        other.write_text(json.dumps(turned(whole)))
        assert one.read_bytes() != other.read_bytes()
        done = envcheck("compare", one, other)
        assert done.returncode == (0 if name == "report" else 11)
        found = json.loads(envcheck("compare", one, other, "--format", "json").stdout)
        (only,) = found["others"]
        assert (only["distributions"], only["facts"], only["lost"]) == ([], [], [])
        assert all(c["before"] == c["after"] for c in only["checks"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "neither a manifest nor"),
        ("[]", "neither a manifest nor"),
        ("{", "not valid JSON"),
        ('{"schema": "envcheck/reports/v1", "reports": []}', "several reports"),
    ],
)
def test_what_is_none_of_them_is_refused(
    signed: Signed, tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    done = envcheck("compare", signed.manifest, path)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


def test_one_file_is_not_compared_with_itself(signed: Signed) -> None:
    done = envcheck("compare", signed.manifest)
    assert done.returncode == 2
    assert "nothing to compare it with" in done.stderr


def test_a_file_that_is_not_there(signed: Signed, tmp_path: Path) -> None:
    assert envcheck("compare", signed.manifest, tmp_path / "none.json").returncode == 3
